"""Operators over images: convolutions, pooling, resizing, boxes."""
