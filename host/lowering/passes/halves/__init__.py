"""Products and sums in half precision."""
