"""Chains of convolutions in bands of rows."""
