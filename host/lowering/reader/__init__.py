"""Reads relax into the graph: every operator that the graph knows in canonical form, the rest as they are."""

from __future__ import annotations

from host.lowering.reader.relax_reader import read

__all__ = ["read"]
