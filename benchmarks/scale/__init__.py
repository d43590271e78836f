"""Records that hosts share, in large numbers."""
