"""Kinds of operators that are drawn, beside those of 32-bit products."""
