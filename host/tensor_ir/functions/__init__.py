"""Functions of the C library that processors have no vectors of, as arithmetic that they have."""
