"""A tensor with one value around it; attributes `before`, `after` and `value`."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import tirx

from host.lowering.builder import Builder
from host.lowering.expressions.stage import Expression, Indices, Stage
from host.lowering.graph import Node, Shape, Value
from host.lowering.ops.movement.pad_repeated import repeated
from host.lowering.passes.permutations.channels import Channels
from host.lowering.passes.permutations.sink_permutations import PermutationWalk, channel_by_channel
from host.lowering.passes.sink_transposes import per_dimension
from host.lowering.reader.call import OperatorCall
from host.lowering.spec import Fusion, OpSpec


def _read(builder: Builder, call: OperatorCall) -> Value | None:
    if call.attrs.pad_mode != "constant":
        return repeated(builder, call)
    widths = [int(w) for w in call.attrs.pad_width]
    if any(width < 0 for width in widths):
        return None
    before, after = tuple(widths[0::2]), tuple(widths[1::2])
    return builder.pad(call.value(0), before, after, float(call.attrs.pad_value))


def _write(stage: Stage, node: Node) -> None:
    """The fill value outside, the input inside."""
    value, before, after = node.inputs[0], node.attrs["before"], node.attrs["after"]

    def element(indices: Indices) -> Expression:
        tests, source = [], []
        for i, b, a, size in zip(indices, before, after, value.shape, strict=True):
            source.append(i - b if b else i)
            tests += [i >= b] if b else []
            tests += [i < b + size] if a else []
        fill = node.attrs["value"] if value.is_float else int(node.attrs["value"])
        return tirx.if_then_else(
            tirx.all(*tests),
            stage.scoped(lambda: stage.element(value, source)),
            tirx.const(fill, value.dtype),
        )

    stage.define(node.output, element)


def _fold(inputs: Any, attrs: Any, shape: Shape, dtype: str) -> np.ndarray:
    widths = tuple(zip(attrs["before"], attrs["after"], strict=True))
    return np.pad(inputs[0], widths, constant_values=attrs["value"])


def _sink_permutation(walk: PermutationWalk, node: Node) -> Channels | None:
    widens = node.attrs["before"][-1] or node.attrs["after"][-1]
    return None if widens else channel_by_channel(walk, node)


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        "pad",
        read={"nn.pad": _read},
        write=_write,
        fold=_fold,
        fusion=Fusion(inlined=True, computes=lambda reader, node: True),
        sink_transpose=per_dimension("before", "after"),
        sink_permutation=_sink_permutation,
    ),
)
