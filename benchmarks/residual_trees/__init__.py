"""Boosted trees instead of the Gaussian process, taught with few records of a board."""
