"""Comparison of engines and variants of a model on a device: verify, measure in turn, select."""
