"""Engines: whatever can run a model file. Golden reference, peer in a measurement, fallback backend."""

from __future__ import annotations

from host.engines.reference import PairedReference, run_reference
from host.engines.table import (
    Engine,
    check_interpreters,
    check_peers,
    engine_for_format,
    engines,
    text_engines,
    unavailable,
)

__all__ = [
    "Engine",
    "PairedReference",
    "check_interpreters",
    "check_peers",
    "engine_for_format",
    "engines",
    "run_reference",
    "text_engines",
    "unavailable",
]
