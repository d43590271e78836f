"""What callers give as arrays and modules, and commands as files."""
