"""ONNX: files read and bounded, graphs simplified and converted to relax."""
