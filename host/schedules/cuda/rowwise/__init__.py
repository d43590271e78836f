"""Reductions along rows, on a GPU."""
