"""Sequences of ONNX models: a compiled model has tensors alone."""
