"""The targets by name; a target's libraries are loaded when it is asked for."""

from __future__ import annotations

from importlib import import_module

from tests.fuzz.case import Target

TARGETS = {
    "compiling": "compiling:Compiling",
    "live": "live:Live",
    "tasks": "tasks:Tasks",
    "records": "records:Records",
    "texts": "texts:Texts",
    "models": "models:Models",
    "frames": "frames:Frames",
    "manifests": "manifests:Manifests",
    "numbers": "numbers:Numbers",
    "quantised": "numbers:Quantised",
}


def target_of(name: str) -> Target:
    """A target, not opened yet."""
    module, _, kind = TARGETS[name].partition(":")
    made: Target = getattr(import_module(f"{__name__}.{module}"), kind)()
    return made
