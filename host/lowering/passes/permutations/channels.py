"""Tensors whose last dimension is known by where each of its channels lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from host.lowering.builder import Builder
from host.lowering.graph import Value, constant

# Parts of a tensor that are joined; with more, joining takes longer than a transpose or a gather does.
_MOST_PARTS = 24

Place = tuple[Value, int]


@dataclass(frozen=True, eq=False)
class Channels:
    """A tensor that need not lie in memory: its channel i is channel `places[i][1]` of tensor `places[i][0]`.

    Attributes:
        places: one for each channel; all tensors have the same other dimensions.
    """

    places: tuple[Place, ...]

    @classmethod
    def of(cls, tensor: Value) -> Channels:
        """A tensor as it lies in memory."""
        return cls(tuple((tensor, channel) for channel in range(tensor.shape[-1])))

    @cached_property
    def tensor(self) -> Value | None:
        """The tensor that has these channels in this order and no others, if there is one."""
        tensor, _ = self.places[0]
        alone = len(self.places) == tensor.shape[-1]
        return tensor if alone and self.places == Channels.of(tensor).places else None

    @cached_property
    def sources(self) -> tuple[Value, ...]:
        """The tensors that channels come from, in the order of their first channel."""
        return tuple(dict.fromkeys(tensor for tensor, _ in self.places))

    @cached_property
    def as_they_lie(self) -> np.ndarray:
        """The order in which channels lie in memory: of one tensor after the other."""
        rank = {source: i for i, source in enumerate(self.sources)}
        keys = [(rank[source], channel) for source, channel in self.places]
        return np.array(sorted(range(len(keys)), key=keys.__getitem__))

    @property
    def is_whole(self) -> bool:
        """Whether it has every channel of its tensors once."""
        count = sum(source.shape[-1] for source in self.sources)
        return count == len(self.places) == len(set(self.places))

    @property
    def runs(self) -> list[tuple[Value, int, int]]:
        """Channels that lie behind each other, as tensor, first channel and count."""
        found: list[tuple[Value, int, int]] = []
        for tensor, channel in self.places:
            if found and found[-1][0] is tensor and channel == found[-1][1] + found[-1][2]:
                found[-1] = (tensor, found[-1][1], found[-1][2] + 1)
            else:
                found.append((tensor, channel, 1))
        return found

    @property
    def has_few_runs(self) -> bool:
        """Whether joining its runs is the fastest way to write it."""
        return len(self.runs) <= max(_MOST_PARTS, len(self.sources))

    def taken(self, order: Sequence[int] | np.ndarray) -> Channels:
        """Channel i is channel order[i] of this tensor."""
        return Channels(tuple(self.places[int(i)] for i in order))

    def of_source(self, source: Value) -> np.ndarray:
        """For each channel of one of the tensors, where it is here; each has to be here once."""
        places = {channel: i for i, (tensor, channel) in enumerate(self.places) if tensor is source}
        return np.array([places[channel] for channel in range(source.shape[-1])])

    def moved_like(self, other: Channels) -> bool:
        """Whether the channels of other tensors lie in them as those of `other` lie in its own."""
        pairs = {(a, b) for (a, _), (b, _) in zip(self.places, other.places, strict=True)}
        alike = all(a[1] == b[1] for a, b in zip(self.places, other.places, strict=True))
        return alike and len(pairs) == len(self.sources) == len(other.sources)


def written(builder: Builder, channels: Channels) -> Value:
    """The tensor in memory: parts of others joined, or a transpose of parts, or a gather."""
    if channels.has_few_runs:
        return _joined(builder, channels.runs)
    last = len(channels.sources[0].shape) - 1
    lying = channels.taken(channels.as_they_lie)
    if lying.has_few_runs:
        return reordered(builder, _joined(builder, lying.runs), inverse_of(channels.as_they_lie), last)
    whole = _joined(builder, [(source, 0, source.shape[-1]) for source in channels.sources])
    starts, start = {}, 0
    for source in channels.sources:
        starts[source], start = start, start + source.shape[-1]
    order = np.array([starts[source] + channel for source, channel in channels.places])
    return reordered(builder, whole, order, last)


def inverse_of(order: np.ndarray) -> np.ndarray:
    """The order that undoes `order`."""
    return np.argsort(order, kind="stable")


def reordered(builder: Builder, value: Value, order: np.ndarray, axis: int) -> Value:
    """`value` with other elements along an axis: element i is that at order[i]."""
    before, after = value.shape[:axis], value.shape[axis + 1 :]
    split = _blocks(order) if len(order) == value.shape[axis] else None
    if split is not None:
        parts = builder.reshape(value, (*before, *split, *after))
        axes = list(range(len(parts.shape)))
        axes[axis : axis + 2] = axis + 1, axis
        return builder.reshape(builder.transpose(parts, axes), value.shape)
    shape, indices = (*before, len(order), *after), constant(order.astype("int32"))
    return builder.one("take", [value, indices], shape, value.dtype, axis=axis, mode="fast")


def _joined(builder: Builder, runs: Sequence[tuple[Value, int, int]]) -> Value:
    parts = [_part(builder, *run) for run in runs]
    if len(parts) == 1:
        return parts[0]
    shape = (*parts[0].shape[:-1], sum(part.shape[-1] for part in parts))
    return builder.one("concat", parts, shape, parts[0].dtype, axis=len(shape) - 1)


def _part(builder: Builder, tensor: Value, first: int, count: int) -> Value:
    rank = len(tensor.shape)
    shape = (*tensor.shape[:-1], count)
    return builder.slice(tensor, (0,) * (rank - 1) + (first,), shape, (1,) * rank)


def _blocks(order: np.ndarray) -> tuple[int, int, int] | None:
    """(a, b, c) if the order is that of a transpose of a x b blocks of c elements."""
    breaks = [i + 1 for i, (one, next_) in enumerate(pairwise(order)) if next_ != one + 1]
    size = breaks[0] if breaks else len(order)
    if order[0] != 0 or len(order) % size or not breaks:
        return None
    outer = int(order[size]) // size
    if outer == 0 or len(order) % (outer * size):
        return None
    count = len(order) // (outer * size)
    wanted = np.arange(len(order)).reshape(count, outer, size).transpose(1, 0, 2).reshape(-1)
    return (count, outer, size) if np.array_equal(order, wanted) else None
