"""Lowering: an imported model becomes calls to fused TensorIR functions whose programs are still open."""

from __future__ import annotations

from host.lowering.lower import lower

__all__ = ["lower"]
