"""Engines: whatever can run a model file. Golden reference, peer in a measurement, fallback backend."""

from __future__ import annotations

from host.engines.reference import run_reference
from host.engines.table import ENGINES, Engine, engine_for_format, unavailable

__all__ = ["ENGINES", "Engine", "engine_for_format", "run_reference", "unavailable"]
