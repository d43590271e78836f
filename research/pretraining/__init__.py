"""Pre-training of the language model on drawn tasks, and the package of weights that is shipped."""
