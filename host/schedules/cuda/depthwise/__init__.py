"""Convolutions of each channel by itself, of halves and of bytes."""
