"""Instructions of a decode step's products beside llama.cpp's kernels, counted without a board."""
