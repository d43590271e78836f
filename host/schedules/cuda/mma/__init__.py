"""Products of halves on tensor cores."""
