"""Converters of ONNX operators to relax: TVM's own, and ours where TVM's are missing or wrong."""

from __future__ import annotations

from host.importers.onnx.operators.context import Context, Converter, constant, constant_value
from host.importers.onnx.operators.registry import converter_for, supported_operators

__all__ = ["Context", "Converter", "constant", "constant_value", "converter_for", "supported_operators"]
