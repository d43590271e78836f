"""Networks with seeded random weights, and their export to ONNX, `.pt2` and TFLite files."""
