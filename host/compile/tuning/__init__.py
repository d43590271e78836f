"""Tuning of the kernels of a model that is being compiled, and who proposes their programs."""
