"""Depthwise convolutions of bytes: each lane adds up the products of its own channel."""
