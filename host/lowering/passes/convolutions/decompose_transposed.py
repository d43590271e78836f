"""Transposed convolutions as convolutions.

With stride s, outputs whose positions leave the same remainder by s read the same subset of the
kernel, and along them the transposed convolution is an ordinary one with that smaller kernel. The
remainders ("phases") are computed apart and interleaved, or side by side as channels: no multiplication by
inserted zeros.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Value, constant
from host.lowering.rebuild import rebuild


def decompose_transposed(graph: Graph, any_length: bool = False) -> Graph:
    """A graph whose "conv_transpose" nodes are "conv", "dense" and movement.

    Args:
        graph: to rewrite.
        any_length: whether it stands for graphs of other lengths too; phases are computed apart then.
    """
    forms = (_as_dense, _as_phases) if any_length else (_as_dense, _as_columns, _as_phases)

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        if node.op != "conv_transpose":
            return builder.copy(node, inputs)
        for form in forms:
            result = form(builder, node, inputs[0], inputs[1])
            if result is not None:
                return result
        return _as_dilated(builder, node, inputs[0], inputs[1])

    return rebuild(graph, rule)


@dataclass(frozen=True)
class _Phase:
    """One remainder along one dimension.

    Attributes:
        taps: kernel positions, in the order in which a convolution reads its input: backwards.
        before, after: padding of the input.
        size: outputs.
    """

    taps: range
    before: int
    after: int
    size: int


def _as_dense(builder: Builder, node: Node, data: Value, weight: Value) -> Value | None:
    """An input of one position: every output position is one kernel position."""
    spatial, attrs = data.shape[1:-1], node.attrs
    kernel, outputs = weight.shape[:-2], node.output.shape[1:-1]
    begin = attrs["padding"][: len(spatial)]
    fits = all(b + o <= k for b, o, k in zip(begin, outputs, kernel, strict=True))
    if any(size != 1 for size in spatial) or attrs["groups"] != 1 or not fits or weight.data is None:
        return None
    if any(d != 1 for d in attrs["dilation"]):
        return None
    window = tuple(slice(b, b + o) for b, o in zip(begin, outputs, strict=True))
    matrix = np.moveaxis(weight.data[window], -2, 0).reshape(weight.shape[-2], -1)
    rows = builder.reshape(data, (data.shape[0], data.shape[-1]))
    shape = (data.shape[0], matrix.shape[1])
    result = builder.one("dense", [rows, constant(matrix)], shape, node.output.dtype)
    return builder.reshape(result, node.output.shape)


def _as_columns(builder: Builder, node: Node, data: Value, weight: Value) -> Value | None:
    """One convolution whose channels are those of all phases, where strides enlarge the last dimension alone.

    What it makes lies in memory as the result does, so that a view and a slice give that. The kernel has to
    be a multiple of the stride: each phase then reads the same positions.
    """
    attrs, last = node.attrs, len(node.attrs["strides"]) - 1
    stride, padding, kernel = attrs["strides"][last], attrs["padding"][last], weight.shape[last]
    taps, outputs = kernel // stride, node.output.shape[1 + last]
    made = data.shape[1 + last] + taps - 1
    wide = stride > 1 and all(step == 1 for step in attrs["strides"][:last])
    if not wide or attrs["groups"] != 1 or any(d != 1 for d in attrs["dilation"]):
        return None
    others = [_phases(node, data, weight, d)[0] for d in range(last)]
    fits = kernel % stride == 0 and padding + outputs <= made * stride
    if not fits or any(p.before < 0 or p.after < 0 for p in others):
        return None
    kept = _as_convolution(builder, weight, 1, [*(p.taps for p in others), range(kernel)])
    *before, _, channels, columns = kept.shape
    split = builder.reshape(kept, (*before, taps, stride, channels, columns))
    split = builder.transpose(split, (*range(last + 1), last + 2, last + 1, last + 3))
    joined = builder.reshape(split, (*before, taps, channels, stride * columns))
    first, steps = (*(0,) * last, taps - 1, 0, 0), (*(1,) * last, -1, 1, 1)
    result = builder.one(
        "conv",
        [data, builder.slice(joined, first, joined.shape, steps)],
        (data.shape[0], *(p.size for p in others), made, stride * columns),
        node.output.dtype,
        strides=(1,) * (last + 1),
        padding=(*(p.before for p in others), taps - 1, *(p.after for p in others), taps - 1),
        dilation=(1,) * (last + 1),
        groups=1,
    )
    whole = builder.reshape(result, (*result.shape[:-2], made * stride, columns))
    return builder.slice(whole, (*(0,) * (last + 1), padding, 0), node.output.shape, (1,) * (last + 3))


def _as_phases(builder: Builder, node: Node, data: Value, weight: Value) -> Value | None:
    attrs = node.attrs
    if any(d != 1 for d in attrs["dilation"]):
        return None
    rank, groups = len(attrs["strides"]), attrs["groups"]
    phases = [_phases(node, data, weight, d) for d in range(rank)]
    if any(not p.taps or p.before < 0 or p.after < 0 for along in phases for p in along):
        return None
    parts = []
    for choice in itertools.product(*phases):
        kernel = _as_convolution(builder, weight, groups, [phase.taps for phase in choice])
        parts.append(
            builder.one(
                "conv",
                [data, kernel],
                (data.shape[0], *(phase.size for phase in choice), node.output.shape[-1]),
                node.output.dtype,
                strides=(1,) * rank,
                padding=(*(phase.before for phase in choice), *(phase.after for phase in choice)),
                dilation=(1,) * rank,
                groups=groups,
            )
        )
    if len(parts) == 1:
        return parts[0]
    return builder.one(
        "interleave", parts, node.output.shape, node.output.dtype, strides=tuple(attrs["strides"])
    )


def _phases(node: Node, data: Value, weight: Value, d: int) -> list[_Phase]:
    """The remainders along spatial dimension `d`.

    Output o = s j + q takes input i = j + c - t at kernel position k = k0 + s t, where
    k0 = (q + p) mod s and c = (q + p - k0) / s; t runs backwards to make it a convolution.
    """
    stride, padding = node.attrs["strides"][d], node.attrs["padding"][d]
    size, kernel, outputs = data.shape[1 + d], weight.shape[d], node.output.shape[1 + d]
    phases = []
    for q in range(min(stride, outputs)):
        first = (q + padding) % stride
        shift = (q + padding - first) // stride
        taps = range(first, kernel, stride)[::-1]
        count = -(-(outputs - q) // stride)
        phases.append(_Phase(taps, len(taps) - 1 - shift, count + shift - size, count))
    return phases


def _as_dilated(builder: Builder, node: Node, data: Value, weight: Value) -> Value:
    """Any transposed convolution: zeros between the inputs, then a convolution with the flipped kernel."""
    attrs, spatial = node.attrs, data.shape[1:-1]
    rank, groups = len(spatial), attrs["groups"]
    sizes = [(n - 1) * s + 1 for n, s in zip(spatial, attrs["strides"], strict=True)]
    spread = data
    if sizes != list(spatial):
        shape = (data.shape[0], *sizes, data.shape[-1])
        spread = builder.one("dilate", [data], shape, data.dtype, strides=(1, *attrs["strides"], 1))
    reach = [(k - 1) * d for k, d in zip(weight.shape[:-2], attrs["dilation"], strict=True)]
    outputs = node.output.shape[1:-1]
    # Cropping more than the kernel reaches means leaving out outputs.
    skipped = [max(p - r, 0) for p, r in zip(attrs["padding"][:rank], reach, strict=True)]
    before = [max(r - p, 0) for p, r in zip(attrs["padding"][:rank], reach, strict=True)]
    after = [
        max(s + o - 1 + r + 1 - b - n, 0)
        for s, o, r, b, n in zip(skipped, outputs, reach, before, sizes, strict=True)
    ]
    made = [n + b + a - r for n, b, a, r in zip(sizes, before, after, reach, strict=True)]
    flipped = _as_convolution(builder, weight, groups, [range(size)[::-1] for size in weight.shape[:-2]])
    result = builder.one(
        "conv",
        [spread, flipped],
        (data.shape[0], *made, node.output.shape[-1]),
        node.output.dtype,
        strides=(1,) * rank,
        padding=(*before, *after),
        dilation=attrs["dilation"],
        groups=groups,
    )
    return builder.slice(result, (0, *skipped, 0), node.output.shape, (1,) * (rank + 2))


def _as_convolution(builder: Builder, weight: Value, groups: int, taps: Sequence[range]) -> Value:
    """Some kernel positions of a weight [*K, C, O / G], as a convolution's weight [*K, C / G, O].

    Args:
        builder: adds operations where the weight is no constant.
        weight: of the transposed convolution.
        groups: G.
        taps: the positions along each spatial dimension, in the order of the result.
    """
    begin = (*(along[0] for along in taps), 0, 0)
    steps = (*(along.step for along in taps), 1, 1)
    kernel, (channels, columns) = tuple(map(len, taps)), weight.shape[-2:]
    kept = builder.slice(weight, begin, (*kernel, channels, columns), steps)
    if groups == 1:
        return kept
    rank, depth = len(kernel), channels // groups
    parts = builder.reshape(kept, (*kernel, groups, depth, columns))
    parts = builder.transpose(parts, (*range(rank), rank + 1, rank, rank + 2))
    return builder.reshape(parts, (*kernel, depth, groups * columns))
