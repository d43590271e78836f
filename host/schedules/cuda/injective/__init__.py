"""Stages without reductions, on a GPU."""
