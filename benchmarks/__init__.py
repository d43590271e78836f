"""Programs that measure the product, and their results: `python -m benchmarks.NAME`, run by hand."""
