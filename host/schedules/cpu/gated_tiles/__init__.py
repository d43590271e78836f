"""Products of gate and up with quantised weights in registers of matrices, with their activation."""
