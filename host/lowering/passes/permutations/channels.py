"""Tensors whose last dimension is known by where each of its channels lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from host.lowering.builder import Builder
from host.lowering.graph import Value, constant

# Time of a part that is joined, of an element of a gather, and of one in a transpose of blocks of several, as
# elements of a transpose: 784 rows on AVX-512 take 2.5 us a part, and 0.17, 0.4 and 0.1 us a channel.
_RUN, _GATHERED, _IN_BLOCKS = 14, 2.4, 0.6

Place = tuple[Value, int]
# Channels that lie behind each other: the tensor, the first one and how many.
Run = tuple[Value, int, int]


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

    @cached_property
    def runs(self) -> list[Run]:
        """The fewest runs that it consists of."""
        found: list[Run] = []
        for tensor, channel in self.places:
            if found and found[-1][0] is tensor and channel == found[-1][1] + found[-1][2]:
                found[-1] = (tensor, found[-1][1], found[-1][2] + 1)
            else:
                found.append((tensor, channel, 1))
        return found

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
    runs, order = _tensor_and_order(channels)
    if _cost_of_joining(channels.runs) <= _cost_of_reordering(runs, order):
        return _joined(builder, channels.runs)
    whole = _joined(builder, runs)
    return reordered(builder, whole, order, len(whole.shape) - 1)


def cost(channels: Channels) -> float:
    """What writing the tensor takes, in the time in which a transpose moves one channel."""
    reordering = _cost_of_reordering(*_tensor_and_order(channels))
    return min(_cost_of_joining(channels.runs), reordering)


def _cost_of_joining(runs: Sequence[Run]) -> float:
    if len(runs) == 1 and runs[0][2] == runs[0][0].shape[-1]:
        return 0.0
    return _RUN * len(runs)


def _cost_of_reordering(runs: Sequence[Run], order: np.ndarray) -> float:
    split = _blocks(order) if len(order) == sum(count for *_, count in runs) else None
    each = _GATHERED if split is None else 1.0 if split[2] == 1 else _IN_BLOCKS
    return _cost_of_joining(runs) + each * len(order)


def _tensor_and_order(channels: Channels) -> tuple[list[Run], np.ndarray]:
    """What to join, and the channels of that which these are: as they lie, or all of the tensors."""
    lying = channels.taken(channels.as_they_lie)
    if len(lying.runs) <= len(channels.sources):
        return lying.runs, inverse_of(channels.as_they_lie)
    starts, start = {}, 0
    for source in channels.sources:
        starts[source], start = start, start + source.shape[-1]
    order = np.array([starts[source] + channel for source, channel in channels.places])
    return [(source, 0, source.shape[-1]) for source in channels.sources], order


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


def _joined(builder: Builder, runs: Sequence[Run]) -> Value:
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
