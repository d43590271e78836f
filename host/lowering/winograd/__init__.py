"""Winograd's minimal filtering for 3x3 convolutions: where it pays, and what it computes."""

from __future__ import annotations

from host.lowering.winograd.choice import Shape, direct_seconds, winograd_seconds
from host.lowering.winograd.transforms import TILES, Transform

__all__ = ["TILES", "Shape", "Transform", "direct_seconds", "winograd_seconds"]
