"""Convolutions whose taps often meet padding become one convolution for each region of the output.

A tap that lies a long way from the centre, as in a dilated convolution of a small image, reads padding for
many output positions. Along one dimension, the output falls into segments within which the same taps read the
image; a region is a segment of each dimension. Each region computes its own taps only and reads no padding.
All regions read the same packed weight, from its first tap of the region on.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from math import prod

from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Value
from host.lowering.rebuild import rebuild

# Multiplications that take as long as one weight takes to arrive from a cache that several regions share.
_MULTIPLICATIONS_PER_WEIGHT = 8
# Multiplications that take as long as to start one more function and to copy one element of its result.
_MULTIPLICATIONS_PER_REGION = 100_000
_MULTIPLICATIONS_PER_COPY = 8
# Share of the undivided convolution's cost below which the regions are worth their code.
_WORTHWHILE = 0.8
_MOST_REGIONS = 16


@dataclass(frozen=True)
class Segment:
    """Neighbouring output positions of one dimension that read the image through the same taps.

    Attributes:
        first, size: output positions.
        first_tap, taps: kernel positions.
        before, after: padding of the image for these; negative where less than the image is read.
    """

    first: int
    size: int
    first_tap: int
    taps: int
    before: int
    after: int


def split_by_region(graph: Graph) -> Graph:
    """An equal graph whose convolutions multiply by less padding, where that saves time."""
    readers = graph.consumers()
    returned = set(graph.output_values())
    private = {value for value, nodes in readers.items() if len(nodes) == 1 and value not in returned}
    # The regions of each value that a single node reads, which may then be computed by region too.
    regions: dict[Value, _Regions] = {}

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        made = None
        if node.op == "conv":
            made = _convolved(builder, node, inputs)
        elif node.spec.is_elementwise and len(node.outputs) == 1:
            made = _by_region(builder, node, inputs, regions)
        if made is None:
            return builder.copy(node, inputs)
        whole = made.whole(builder)
        if node.output in private:
            regions[whole] = made
        return whole

    return rebuild(graph, rule)


@dataclass(frozen=True, eq=False)
class _Regions:
    """The parts of a tensor [N, *S, C] in the order of the segments of each spatial dimension."""

    counts: tuple[int, ...]
    parts: tuple[Value, ...]

    def whole(self, builder: Builder) -> Value:
        """The parts put together, along the last spatial dimension first."""
        parts = list(self.parts)
        for axis in range(len(self.counts), 0, -1):
            count = self.counts[axis - 1]
            rows = [parts[i : i + count] for i in range(0, len(parts), count)]
            parts = [_concatenated(builder, row, axis) for row in rows]
        return parts[0]


def _concatenated(builder: Builder, parts: list[Value], axis: int) -> Value:
    if len(parts) == 1:
        return parts[0]
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    return builder.one("concat", parts, tuple(shape), parts[0].dtype, axis=axis)


def _by_region(
    builder: Builder, node: Node, inputs: tuple[Value, ...], regions: dict[Value, _Regions]
) -> _Regions | None:
    """An elementwise operation on the parts of its one variable input; constants differ by channel only."""
    variable = [value for value in inputs if not value.is_constant]
    if len(variable) != 1 or variable[0] not in regions or variable[0].shape != node.output.shape:
        return None
    if any(prod(value.shape[:-1]) != 1 for value in inputs if value.is_constant):
        return None
    parts = []
    for part in regions[variable[0]].parts:
        arguments = [part if value is variable[0] else value for value in inputs]
        parts.append(builder.one(node.op, arguments, part.shape, node.output.dtype, **node.attrs))
    return _Regions(regions[variable[0]].counts, tuple(parts))


def _convolved(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> _Regions | None:
    """One convolution for each region, or None where they save nothing."""
    if not node.output.is_float or not inputs[1].is_constant or "first_tap" in node.attrs:
        return None
    chosen = _chosen(node)
    if chosen is None:
        return None
    parts = []
    for region in itertools.product(*chosen):
        shape = (node.output.shape[0], *(segment.size for segment in region), node.output.shape[-1])
        attrs = {
            **node.attrs,
            "padding": (*(segment.before for segment in region), *(segment.after for segment in region)),
            "first_tap": tuple(segment.first_tap for segment in region),
            "taps": tuple(segment.taps for segment in region),
        }
        parts.append(builder.one("conv", inputs, shape, node.output.dtype, **attrs))
    return _Regions(tuple(len(segments) for segments in chosen), tuple(parts))


def _chosen(node: Node) -> tuple[tuple[Segment, ...], ...] | None:
    """The segments of each dimension that cost least, or None if the undivided convolution does."""
    rank = len(node.attrs["strides"])
    undivided = tuple((_undivided(node, d),) for d in range(rank))
    options = [(whole, _segments(node, d)) for d, whole in enumerate(undivided)]
    best, least = None, _WORTHWHILE * _cost(node, undivided)
    for choice in itertools.product(*options):
        if prod(len(segments) for segments in choice) <= _MOST_REGIONS and _cost(node, choice) < least:
            best, least = choice, _cost(node, choice)
    return best


def _cost(node: Node, segments: tuple[tuple[Segment, ...], ...]) -> float:
    """What a choice takes, in multiplications."""
    batch, channels = node.output.shape[0], node.output.shape[-1]
    weights_per_tap = node.inputs[1].shape[-2] * channels
    regions = list(itertools.product(*segments))
    cost = 0.0
    for region in regions:
        positions = batch * prod(segment.size for segment in region)
        taps = prod(segment.taps for segment in region)
        cost += taps * weights_per_tap * (positions + _MULTIPLICATIONS_PER_WEIGHT)
        cost += _MULTIPLICATIONS_PER_REGION
    copied = 0 if len(regions) == 1 else node.output.size
    return cost + _MULTIPLICATIONS_PER_COPY * copied


def _undivided(node: Node, d: int) -> Segment:
    rank = len(node.attrs["strides"])
    padding = node.attrs["padding"]
    size, taps = node.output.shape[1 + d], node.inputs[1].shape[d]
    return Segment(0, size, 0, taps, padding[d], padding[rank + d])


def _segments(node: Node, d: int) -> tuple[Segment, ...]:
    """The segments along spatial dimension `d`.

    Output o reads input o s + k dilation - p through tap k, where that is one of the n input positions.
    """
    stride, dilation, before = (node.attrs[name][d] for name in ("strides", "dilation", "padding"))
    inputs, outputs, kernel = node.inputs[0].shape[1 + d], node.output.shape[1 + d], node.inputs[1].shape[d]

    def taps(position: int) -> tuple[int, int]:
        """The first tap that reads the image at an output position, and the one behind the last."""
        origin = position * stride - before
        first = max(0, -(origin // dilation))
        last = min(kernel, -((origin - inputs) // dilation))
        return first, max(first, last)

    segments = []
    for (first_tap, last_tap), members in itertools.groupby(range(outputs), taps):
        positions = list(members)
        if first_tap == last_tap:
            # These outputs read nothing but padding; a region has at least one tap.
            return (_undivided(node, d),)
        start = positions[0] * stride + first_tap * dilation - before
        end = positions[-1] * stride + (last_tap - 1) * dilation - before + 1
        segments.append(
            Segment(positions[0], len(positions), first_tap, last_tap - first_tap, -start, end - inputs)
        )
    return tuple(segments)
