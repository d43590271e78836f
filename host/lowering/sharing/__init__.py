"""What is equal is there once: constants, nodes that compute the same, parameters of several entries."""
