"""Quantising ONNX models with samples of the user: ONNX Runtime's quantiser, and a search over layers."""

from __future__ import annotations

from host.quantisation.parent import QuantisedFile, quantise

__all__ = ["QuantisedFile", "quantise"]
