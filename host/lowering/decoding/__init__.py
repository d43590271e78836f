"""Attention of new tokens to all tokens before them, whose keys and values are kept."""
