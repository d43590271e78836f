"""The function of attention on a GPU that multiplies matrices: softmax(scale Q K^T + mask) V, block by block.

Tensors lie in memory as halves, and all is computed in single precision. The rule `cuda_attention` of the
schedule families computes a block of rows at a time, so that scores stay in registers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

from host.lowering.attention.function import Operand
from host.lowering.attention.masks import LOWEST
from host.lowering.expressions import math
from host.lowering.expressions.stage import Expression, Stage, load
from host.lowering.graph import Node, Value

# Blocks that the rule knows, and the annotation of the first one: scale and causal offset as JSON.
SCORES, MASKED, CAUSAL, LARGEST, POWERS, TOTAL, MIXED = (
    "attention_scores",
    "attention_masked",
    "attention_causal",
    "attention_largest",
    "attention_powers",
    "attention_total",
    "attention_mixed",
)
OPTIONS = "edgetlm.attention"


def write_attention(stage: Stage, node: Node) -> None:
    """The blocks of a "matrix_attention" node: queries, keys, values, perhaps a mask."""
    attrs = node.attrs
    query, key, value, *masks = (
        _reader(stage, tensor, attrs[name])
        for name, tensor in zip(("query", "key", "value", "mask"), node.inputs, strict=False)
    )
    output: Operand = attrs["output"]
    *batch, rows, width = output.logical
    columns, depth = attrs["key"].logical[-2:]
    square = (*batch, rows, columns)
    k, n = te.reduce_axis((0, depth), "k"), te.reduce_axis((0, columns), "n")
    options = json.dumps({"scale": attrs["scale"], "causal": attrs["causal"]})
    scores = te.compute(
        square,
        lambda *i: te.sum(query((*i[:-1], k)) * key((*i[:-2], i[-1], k)), axis=[k]),
        name=SCORES,
        attrs={OPTIONS: options},
    )
    lowest = tirx.const(LOWEST, "float32")

    def masked(i: Sequence[Any]) -> Expression:
        score = load(scores, i) * tirx.const(attrs["scale"], "float32")
        for mask in masks:
            score = tirx.max(score + mask(i), lowest)
        if attrs["causal"] is None:
            return score
        return tirx.Select(i[-1] <= i[-2] + attrs["causal"], score, lowest)

    seen = stage.compute(square, masked, MASKED if attrs["causal"] is None else CAUSAL)
    c, d = (te.reduce_axis((0, columns), name) for name in ("c", "d"))
    largest = stage.compute((*batch, rows), lambda i: te.max(load(seen, (*i, c)), axis=[c]), LARGEST)
    powers = stage.compute(
        square, lambda i: math.exp_of_nonpositive(load(seen, i) - load(largest, i[:-1])), POWERS
    )
    total = stage.compute((*batch, rows), lambda i: te.sum(load(powers, (*i, d)), axis=[d]), TOTAL)
    mixed = stage.compute(
        (*batch, rows, width),
        lambda i: te.sum(load(powers, (*i[:-1], n)) * value((*i[:-2], n, i[-1])), axis=[n]),
        MIXED,
    )

    def element(i: Sequence[Any]) -> Expression:
        logical = [0 if axis is None else i[axis] for axis in output.axes]
        return load(mixed, logical) / load(total, logical[:-1])

    stage.define(node.output, element)


def _reader(stage: Stage, value: Value, operand: Operand) -> Any:
    """The element of a tensor by logical indices, in single precision."""

    def element(logical: Sequence[Any]) -> Expression:
        placed: list[Any] = [0] * len(operand.shape)
        for axis, index in zip(operand.axes, logical, strict=True):
            if axis is not None:
                placed[axis] = index
        return stage.element(value, placed)

    return element
