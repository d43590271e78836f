"""The types that the layers of a model compute in, and what the search for them found: plain data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from host.model.quantisation import FrontPoint


@dataclass(frozen=True)
class TypedLayer:
    """A layer with products of constant weights.

    Attributes:
        name: of the layer in the model file.
        half: whether it computes in half precision, in the model that was made.
        saved_s: estimated seconds of a run that half precision saves where all other layers have it; below 0
            where conversions cost more. That of its group, where layers were judged together.
        alone: error of the outputs where only this layer, or its group, is in half precision; None where
            that was not measured.
    """

    name: str
    half: bool
    saved_s: float
    alone: float | None = None


@dataclass(frozen=True)
class NumericTypes:
    """What `--dtype auto` chose, and why.

    Attributes:
        dtype: of the model that was made: "fp32", or `half` with some layers in fp32.
        half: the type of half precision that the device computes in, "bf16" or "fp16".
        tolerance: the largest error of an output that was allowed, relative to its largest value.
        why: one sentence.
        layers: in the order of the model; empty where none can be in half precision.
        front: models whose error was measured, by the number of layers in fp32.
        single_s: estimated seconds of a run in fp32; NaN where nothing was estimated.
        compiled: models that the search compiled.
        group: layers that were judged together; 1 for each by itself.
    """

    dtype: str
    half: str
    tolerance: float
    why: str
    layers: tuple[TypedLayer, ...] = ()
    front: tuple[FrontPoint, ...] = ()
    single_s: float = math.nan
    compiled: int = 0
    group: int = 1

    @property
    def in_half(self) -> int:
        """Layers that compute in half precision."""
        return sum(one.half for one in self.layers)

    def by_loss(self) -> tuple[TypedLayer, ...]:
        """The layers, those that lose most alone first; those that were not measured last."""
        return tuple(sorted(self.layers, key=lambda one: math.inf if one.alone is None else -one.alone))

    def data(self) -> dict[str, Any]:
        """As plain data, for JSON; what is not finite or not known is None."""
        return {
            "dtype": self.dtype,
            "half": self.half,
            "tolerance": self.tolerance,
            "why": self.why,
            "single_ms": _milliseconds(self.single_s),
            "compiled": self.compiled,
            "group": self.group,
            "layers": [
                {
                    "name": one.name,
                    "dtype": self.half if one.half else "fp32",
                    "saved_ms": _milliseconds(one.saved_s),
                    "alone_error": _finite(one.alone),
                }
                for one in self.layers
            ],
            "front": [
                {
                    "kept": point.kept,
                    "estimate_ms": _milliseconds(point.estimate_s),
                    "error": _finite(point.error),
                    "taken": point.taken,
                }
                for point in self.front
            ],
        }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _milliseconds(seconds: float | None) -> float | None:
    found = _finite(seconds)
    return None if found is None else 1e3 * found
