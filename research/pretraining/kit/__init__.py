"""Training of the language model on a machine with a GPU and without a compiler."""
