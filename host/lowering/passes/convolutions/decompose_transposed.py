"""Transposed convolutions as convolutions.

With stride s, outputs whose positions leave the same remainder by s read the same subset of the
kernel, and along them the transposed convolution is an ordinary one with that smaller kernel. The
remainders ("phases") are computed apart and interleaved: no multiplication by inserted zeros.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Value, constant
from host.lowering.rebuild import rebuild


def decompose_transposed(graph: Graph) -> Graph:
    """A graph whose "conv_transpose" nodes are "conv", "dense" and movement."""

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        if node.op != "conv_transpose":
            return builder.copy(node, inputs)
        for form in (_as_dense, _as_phases):
            result = form(builder, node, inputs[0], inputs[1])
            if result is not None:
                return result
        return _as_dilated(builder, node, inputs[0], inputs[1])

    return rebuild(graph, rule)


@dataclass(frozen=True)
class _Phase:
    """One remainder along one dimension.

    Attributes:
        taps: kernel positions, in the order in which a convolution reads its input.
        before, after: padding of the input.
        size: outputs.
    """

    taps: tuple[int, ...]
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


def _as_phases(builder: Builder, node: Node, data: Value, weight: Value) -> Value | None:
    attrs = node.attrs
    if attrs["groups"] != 1 or any(d != 1 for d in attrs["dilation"]) or weight.data is None:
        return None
    rank = len(attrs["strides"])
    phases = [_phases(node, data, weight, d) for d in range(rank)]
    if any(not p.taps or p.before < 0 or p.after < 0 for along in phases for p in along):
        return None
    parts = []
    for choice in itertools.product(*phases):
        kernel = weight.data[np.ix_(*(phase.taps for phase in choice))]
        parts.append(
            builder.one(
                "conv",
                [data, constant(kernel)],
                (data.shape[0], *(phase.size for phase in choice), weight.shape[-1]),
                node.output.dtype,
                strides=(1,) * rank,
                padding=(*(phase.before for phase in choice), *(phase.after for phase in choice)),
                dilation=(1,) * rank,
                groups=1,
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
        taps = tuple(range(first, kernel, stride))[::-1]
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
    result = builder.one(
        "conv",
        [spread, constant(_flipped(weight, groups))],
        (data.shape[0], *made, node.output.shape[-1]),
        node.output.dtype,
        strides=(1,) * rank,
        padding=(*before, *after),
        dilation=attrs["dilation"],
        groups=groups,
    )
    return builder.slice(result, (0, *skipped, 0), node.output.shape, (1,) * (rank + 2))


def _flipped(weight: Value, groups: int) -> np.ndarray:
    """[*K, C, O / G] with the kernel reversed, as a convolution's [*K, C / G, O]."""
    assert weight.data is not None
    rank = len(weight.shape) - 2
    data = np.flip(weight.data, tuple(range(rank)))
    parts = np.split(data, groups, axis=-2)
    return np.concatenate(parts, axis=-1)
