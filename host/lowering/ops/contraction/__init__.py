"""Convolutions and matrix products, channels last."""
