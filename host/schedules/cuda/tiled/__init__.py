"""Tiled reductions, on a GPU."""
