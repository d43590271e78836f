"""Operators of the domain ai.onnx.ml, and others on features of data."""
