"""Small valid ONNX models of operators drawn by chance, with sizes that nothing divides.

A seed makes the same model on every machine. Functions with steps (rounding, comparisons, positions of
maxima) are drawn only where their input is exact: the others may be a last digit away from ONNX Runtime's.
"""
