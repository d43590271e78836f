"""Control flow of ONNX files as nodes without any: branches, loops of known length, and loops over bags."""
