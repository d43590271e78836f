"""Products of bytes beside ONNX Runtime's."""
