"""Reductions along rows that lie in contiguous memory."""
