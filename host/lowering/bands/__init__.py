"""Chains of convolutions that are computed in bands of rows, so that what lies between them stays in cache."""
