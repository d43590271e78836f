"""Gensor: constructs programs by walking a graph of schedule states, from a model of the hardware."""

from __future__ import annotations

from host.gensor.proposer import Gensor

__all__ = ["Gensor"]
