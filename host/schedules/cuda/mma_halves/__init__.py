"""Products of halves and of bytes on tensor cores."""
