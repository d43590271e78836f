"""What learning adds on this machine, beside its own absence and beside chance."""
