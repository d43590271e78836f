"""Runs compiled kernels where what they read or write beyond their buffers, or unwritten, shows."""
