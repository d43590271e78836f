"""Products with weights of 4 or 8 bits that have a scale for each group of elements."""
