"""Pooling on a GPU: extremes and means over windows of an image."""
