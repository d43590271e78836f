"""Many records, and many boards: `python -m benchmarks.scale`."""
