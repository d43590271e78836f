"""Register-blocked reductions."""
