"""ONNX's own node tests through the importer and the compiler."""
