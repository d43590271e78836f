"""Attention of new tokens over a cache of keys and values, on a GPU."""
