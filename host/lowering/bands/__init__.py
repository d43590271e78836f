"""Chains of convolutions that are computed in bands of rows, to keep what lies between in cache."""
