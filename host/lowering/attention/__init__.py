"""Attention as one function: the subgraph that becomes it, and its TensorIR."""
