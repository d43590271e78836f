"""Rewrites of the graph, one pass a file; `host.lowering.lower` gives their order."""
