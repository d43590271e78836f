"""A tensor with its own elements around it; attributes `before`, `after` and `mode`.

The modes are relax's: "reflect" mirrors at the outermost elements, "replicate" repeats them, and "circular"
goes on from the other end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from tvm import tirx

from host.lowering.builder import Builder
from host.lowering.expressions.stage import Expression, Indices, Stage
from host.lowering.graph import Node, Shape, Value
from host.lowering.passes.sink_transposes import per_dimension
from host.lowering.reader.call import OperatorCall
from host.lowering.spec import Fusion, OpSpec

# What NumPy calls them.
_NUMPY_MODES: Mapping[str, Any] = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
# What comes before is computed with the border as long as that is little more work.
_MOST_REPEATED = 1.5


def repeated(builder: Builder, call: OperatorCall) -> Value | None:
    """The reader of relax's pad with elements of the tensor."""
    value, mode = call.value(0), str(call.attrs.pad_mode)
    widths = [int(width) for width in call.attrs.pad_width]
    before, after = tuple(widths[0::2]), tuple(widths[1::2])
    # A border that is wider than the tensor would go through it more than once.
    farthest = 1 if mode == "reflect" else 0
    fits = all(
        max(b, a) <= max(size - farthest, 0) for b, a, size in zip(before, after, value.shape, strict=True)
    )
    if mode not in _NUMPY_MODES or min(widths, default=0) < 0 or (mode != "replicate" and not fits):
        return None
    if 0 in value.shape:
        return None
    return builder.one("pad_repeated", [value], call.shape, call.dtype, before=before, after=after, mode=mode)


def _write(stage: Stage, node: Node) -> None:
    value, before, after = node.inputs[0], node.attrs["before"], node.attrs["after"]
    place = _PLACES[node.attrs["mode"]]

    def element(indices: Indices) -> Expression:
        source = [
            place(i - b, size) if b or a else i
            for i, b, a, size in zip(indices, before, after, value.shape, strict=True)
        ]
        return stage.element(value, source)

    stage.define(node.output, element)


def _reflected(place: Expression, size: int) -> Expression:
    last = size - 1
    return last - tirx.abs(last - tirx.abs(place))


def _replicated(place: Expression, size: int) -> Expression:
    return tirx.max(tirx.min(place, size - 1), 0)


def _circular(place: Expression, size: int) -> Expression:
    return tirx.floormod(place + size, size)


_PLACES = {"reflect": _reflected, "replicate": _replicated, "circular": _circular}


def _fold(inputs: Any, attrs: Any, shape: Shape, dtype: str) -> np.ndarray:
    widths = tuple(zip(attrs["before"], attrs["after"], strict=True))
    padded: np.ndarray = np.pad(inputs[0], widths, mode=_NUMPY_MODES[attrs["mode"]])
    return padded


def _computes(reader: Node, node: Node) -> bool:
    return node.spec.is_elementwise and reader.output.size <= _MOST_REPEATED * node.output.size


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        "pad_repeated",
        write=_write,
        fold=_fold,
        fusion=Fusion(computes=_computes),
        sink_transpose=per_dimension("before", "after"),
    ),
)
