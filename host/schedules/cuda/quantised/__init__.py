"""Products of few rows with quantised weights, on a GPU."""
