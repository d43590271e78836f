"""Pre-training of the language model on randomly drawn tasks, and the package of weights that is shipped."""
