"""Convolutions that do not multiply by padding."""
