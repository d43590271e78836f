"""What a machine with a GPU and without a compiler needs to train the language model, and the training there."""
