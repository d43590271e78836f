"""Attention: a block of rows at a time, whose scores stay in a cache."""
