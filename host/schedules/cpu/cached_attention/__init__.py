"""Attention over a cache: one block for each head of keys."""
