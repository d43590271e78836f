"""Products of many rows with quantised weights in registers of matrices."""
