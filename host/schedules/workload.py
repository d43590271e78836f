"""The computation of a task, as schedules need it: axes, accesses and stages, read off its TensorIR."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from host.lowering.types import NumericType

# Elements of a vector, or of a few: what weights are packed in groups of.
_VECTOR_LENGTHS = (4, 8, 16, 32, 64)
# Programs of which a part of the estimate is kept.
_KNOWN_PROGRAMS = 1 << 14


@dataclass(frozen=True)
class Axis:
    """One iteration axis of a stage.

    Attributes:
        name: name of the iteration variable.
        extent: number of iterations.
        reduce: whether values are combined along it.
    """

    name: str
    extent: int
    reduce: bool


@dataclass(frozen=True)
class Move:
    """How one axis moves through the dimensions of a buffer, up to a number of iterations.

    Attributes:
        every: iterations of the axis that make one step of this move.
        count: steps until the next move goes on, or the axis ends.
        steps: per dimension of the buffer, what the index grows by in one such step.
    """

    every: int
    count: int
    steps: tuple[int, ...]

    @cached_property
    def moved(self) -> tuple[tuple[int, int], ...]:
        """The dimensions that it moves in, each with its step."""
        return tuple((dim, step) for dim, step in enumerate(self.steps) if step)


@dataclass(frozen=True)
class Access:
    """One buffer that a stage reads or writes.

    Attributes:
        buffer: name of the buffer.
        type: of its elements.
        shape: extents of the buffer.
        moves: per axis of the stage, its moves from the innermost: none for a single iteration, one for a
            linear index, two for (j // L, j % L). None for any axis where the index depends on data.
        argument: whether it is an argument of the function rather than an intermediate.
        data_dependent: whether the index depends on data.
        origin: index of the first iteration of all axes; empty where it depends on data.
        along_last: where the index depends on data: whether the last axis is the index of the last dimension,
            so that neighbours lie side by side, and of no other one.
        leading: where the index depends on data: how many leading axes are the indices of as many dimensions.
    """

    buffer: str
    type: NumericType
    shape: tuple[int, ...]
    moves: tuple[tuple[Move, ...], ...]
    argument: bool
    data_dependent: bool = False
    origin: tuple[int, ...] = ()
    along_last: bool = False
    leading: int = 0

    def __hash__(self) -> int:
        """Of the numbers alone, computed once: layouts of copies are kept by it."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.shape, self.moves, self.origin))

    @cached_property
    def elements(self) -> int:
        """Size of the whole buffer."""
        return math.prod(self.shape)

    @cached_property
    def element_bytes(self) -> int:
        """Bytes of one element as it is stored."""
        return self.type.bytes

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """Per axis, elements moved in memory by one step along it; 0 where it is not used.

        For an axis that is split in the index (j // L, j % L) this is the step inside a group.
        """
        return tuple(self.offset(axis, 1) for axis in range(len(self.moves)))

    @cached_property
    def groups(self) -> tuple[tuple[int, int], ...]:
        """Per axis, the length of a group and the elements moved by one; (0, 0) where memory is linear.

        The length is the shortest of a vector's that steps inside a group do not explain.
        """
        return tuple(self._group(axis) for axis in range(len(self.moves)))

    def _group(self, axis: int) -> tuple[int, int]:
        moves = self.moves[axis]
        if len(moves) < 2:
            return (0, 0)
        for length in _VECTOR_LENGTHS:
            if length >= moves[-1].every * moves[-1].count:
                break
            if self.offset(axis, length) != self.strides[axis] * length:
                return (length, self.offset(axis, length))
        return (0, 0)

    def uses(self, axis: int) -> bool:
        """Whether another place in memory is used by steps along the axis."""
        return self.strides[axis] != 0 or self.groups[axis][0] != 0

    @cached_property
    def used_axes(self) -> tuple[int, ...]:
        """The axes along which steps use another place in memory."""
        return tuple(axis for axis in range(len(self.moves)) if self.uses(axis))

    @cached_property
    def used(self) -> frozenset[int]:
        """The axes of `used_axes`, for those who ask whether one is among them."""
        return frozenset(self.used_axes)

    def is_linear(self, axis: int) -> bool:
        """Whether neighbours along all of the axis are neighbours in memory."""
        return self.strides[axis] == 1 and not self.groups[axis][0]

    def offset(self, axis: int, iteration: int, pitches: Sequence[int] = ()) -> int:
        """Elements that an axis has moved in memory after some iterations.

        Args:
            axis: of the stage.
            iteration: how many.
            pitches: elements between neighbours along each dimension; left out, those of the buffer.
        """
        total = 0
        for move in reversed(self.moves[axis]):
            count, iteration = divmod(iteration, move.every)
            for dim, step in move.moved:
                total += count * step * (pitches or self._pitches)[dim]
        return total

    @cached_property
    def tile_bytes(self) -> dict[tuple[int, ...], float]:
        """What `host.schedules.cpu.traffic` has computed of tiles, which the programs of a space share."""
        return {}

    @cached_property
    def _pitches(self) -> tuple[int, ...]:
        return tuple(math.prod(self.shape[dim + 1 :]) for dim in range(len(self.shape)))

    def region(self, tile: Mapping[int, int]) -> tuple[int, ...]:
        """Extents of the box that a tile touches; all of the buffer if that is not known.

        Args:
            tile: iterations by axis; axes left out count one.
        """
        if self.data_dependent:
            return self.shape
        extents = [1] * len(self.shape)
        for axis, iterations in tile.items():
            moves = self.moves[axis]
            for position, move in enumerate(moves):
                steps = -(-iterations // move.every)
                if position + 1 < len(moves):
                    steps = min(steps, move.count)
                for dim, step in move.moved:
                    extents[dim] += abs(step) * (steps - 1)
        return tuple(extents)


@dataclass(frozen=True)
class Stage:
    """One block of a task.

    Attributes:
        name: block name.
        axes: iteration axes in order.
        reads: buffers read.
        write: the buffer written.
        kind: "contraction" (sum of products), "reduction", "padding", "injective", or "whole" of a block that
            is not read, see `host.schedules.analysis.WHOLE`.
        flops_per_point: arithmetic of one iteration, a multiply-add counting two.
        expensive: whether it evaluates a transcendental function.
        conditional: whether what it computes depends on the position.
        fill: of kind "padding", what it writes where it reads nothing; None where that is not one number.
        plain: of kind "contraction", whether it adds up products of two elements, converted at most.
        stated: of kind "whole", what the block states beside its extents, by the names of its annotations.
    """

    name: str
    axes: tuple[Axis, ...]
    reads: tuple[Access, ...]
    write: Access
    kind: str
    flops_per_point: float
    expensive: bool
    conditional: bool = False
    fill: float | None = None
    plain: bool = False
    stated: tuple[tuple[str, str], ...] = ()

    def __hash__(self) -> int:
        """Of the numbers alone, computed once: roles of axes are kept by it."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        extents = tuple((axis.extent, axis.reduce) for axis in self.axes)
        return hash((extents, *(access.shape for access in (*self.reads, self.write))))

    @cached_property
    def spatial(self) -> tuple[int, ...]:
        """Positions of the spatial axes."""
        return tuple(i for i, axis in enumerate(self.axes) if not axis.reduce)

    @cached_property
    def reduction(self) -> tuple[int, ...]:
        """Positions of the reduction axes."""
        return tuple(i for i, axis in enumerate(self.axes) if axis.reduce)

    @cached_property
    def derived(self) -> dict[tuple[str, int], Any]:
        """What rules have computed of the stage, by a name and the lanes of a vector, for all programs."""
        return {}

    def known(self, part: str, *depends_on: object) -> dict[Any, Any]:
        """What an estimate has computed of the stage and programs of it may share; the caller adds to it.

        Args:
            part: of the estimate.
            depends_on: objects beside the decisions, such as the processor. They are compared by identity: a
                construction asks for one processor thousands of times, and whoever asks for another one
                begins anew.
        """
        owner, found = self._known.get(part, ((), {}))
        same = len(owner) == len(depends_on) and all(map(operator.is_, owner, depends_on))
        if not same or len(found) >= _KNOWN_PROGRAMS:
            found = {}
            self._known[part] = (depends_on, found)
        return found

    @cached_property
    def _known(self) -> dict[str, tuple[tuple[object, ...], dict[Any, Any]]]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        """Without what was computed of programs: another process that gets the stage computes its own."""
        return {name: value for name, value in self.__dict__.items() if name != "_known"}

    @cached_property
    def points(self) -> int:
        """Iterations of the whole stage."""
        total = 1
        for axis in self.axes:
            total *= axis.extent
        return total


@dataclass(frozen=True)
class Workload:
    """A task as stages in order of execution.

    Attributes:
        stages: in order.
        anchor: number of the one that decides the structure.
        steps: iterations of a loop around the stages, each of which depends on the one before; 0 without one.
        parts: of a chain in bands of rows, the functions of one band in their order, which have the stages;
            empty for any other task.
        bands: how many bands there are; 0 without parts.
    """

    stages: tuple[Stage, ...]
    anchor: int
    steps: int = 0
    parts: tuple[Workload, ...] = ()
    bands: int = 0

    def __hash__(self) -> int:
        """Of the numbers alone, computed once: what rules find out about a workload is kept by it."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.anchor, self.steps, self.bands, self.stages))

    @property
    def anchor_stage(self) -> Stage:
        """The stage that decides the structure."""
        return self.stages[self.anchor]

    def stage(self, name: str) -> Stage:
        """The stage of a block.

        Args:
            name: of the block; one of them has it.
        """
        return next(stage for stage in self.stages if stage.name == name)

    @property
    def flops(self) -> float:
        """Floating-point operations of one call."""
        return max(1, self.steps, self.bands) * sum(
            stage.points * stage.flops_per_point for stage in self.stages
        )
