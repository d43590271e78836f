"""Which layers of a model compute in half precision, by estimated time and measured error: `--dtype auto`."""

from __future__ import annotations

from host.compile.numeric_types.typed_model import TypedModel, typed_model

__all__ = ["TypedModel", "typed_model"]
