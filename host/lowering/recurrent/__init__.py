"""Recurrent layers: what their cells compute, and the layer as one function or unrolled over its steps."""
