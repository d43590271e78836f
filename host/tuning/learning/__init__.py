"""Training the language model on measured records while the boards measure."""
