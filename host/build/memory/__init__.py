"""Memory of a compiled model, planned before it runs: a block for its activations, and what kernels need."""
