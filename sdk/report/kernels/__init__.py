"""Kernels in reports: what they compute, what limits them, and how they were constructed."""
