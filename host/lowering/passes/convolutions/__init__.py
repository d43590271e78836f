"""Convolutions rewritten as others that processors are better at."""
