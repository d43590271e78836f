"""What a task computes, as far as a schedule cares: axes, accesses and stages, read off its TensorIR."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property


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
        steps: per dimension of the buffer, what the index grows by in one such step.
    """

    every: int
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
        elements: size of the whole buffer.
        element_bytes: size of one element.
        strides: per axis of the stage, elements moved in memory by one step along it (0: not used). For
            an axis that is split in the index (j // L, j % L) this is the step inside a group.
        block_strides: per axis, (group length, elements moved by one group), or (0, 0).
        argument: whether it is an argument of the function rather than an intermediate.
        shape: extents of the buffer.
        moves: per axis, its moves from the innermost: one for a linear index, two for (j // L, j % L). Empty
            where the index depends on data.
    """

    buffer: str
    elements: int
    element_bytes: int
    strides: tuple[int, ...]
    block_strides: tuple[tuple[int, int], ...]
    argument: bool
    shape: tuple[int, ...] = ()
    moves: tuple[tuple[Move, ...], ...] = ()

    def region(self, tile: Mapping[int, int]) -> tuple[int, ...]:
        """Extents of the box that a tile touches; all of the buffer if that is not known.

        Args:
            tile: iterations by axis; axes left out count one.
        """
        if not self.moves:
            return self.shape
        extents = [1] * len(self.shape)
        for axis, iterations in tile.items():
            moves = self.moves[axis]
            for position, move in enumerate(moves):
                steps = -(-iterations // move.every)
                if position + 1 < len(moves):
                    steps = min(steps, moves[position + 1].every // move.every)
                for dim, step in move.moved:
                    extents[dim] += abs(step) * (steps - 1)
        return tuple(extents)

    def span(self, axis: int, steps: int) -> tuple[int, int]:
        """Distance in elements covered by `steps` along `axis`, and the number of separate runs."""
        group, block = self.block_strides[axis]
        if group and steps > group:
            return block * (steps // group - 1) + self.strides[axis] * group, -(-steps // group)
        return self.strides[axis] * steps, 1


@dataclass(frozen=True)
class Stage:
    """One block of a task.

    Attributes:
        name: block name.
        axes: iteration axes in order.
        reads: buffers read.
        write: the buffer written.
        kind: "contraction" (sum of products), "reduction", "padding" or "injective".
        flops_per_point: arithmetic of one iteration, a multiply-add counting two.
        expensive: whether it evaluates a transcendental function.
        conditional: whether what it computes depends on the position.
    """

    name: str
    axes: tuple[Axis, ...]
    reads: tuple[Access, ...]
    write: Access
    kind: str
    flops_per_point: float
    expensive: bool
    conditional: bool = False

    @cached_property
    def spatial(self) -> tuple[int, ...]:
        """Positions of the spatial axes."""
        return tuple(i for i, axis in enumerate(self.axes) if not axis.reduce)

    @cached_property
    def reduction(self) -> tuple[int, ...]:
        """Positions of the reduction axes."""
        return tuple(i for i, axis in enumerate(self.axes) if axis.reduce)

    @cached_property
    def points(self) -> int:
        """Iterations of the whole stage."""
        total = 1
        for axis in self.axes:
            total *= axis.extent
        return total


@dataclass(frozen=True)
class Workload:
    """A task as stages in order of execution; `anchor` is the one that decides its structure."""

    stages: tuple[Stage, ...]
    anchor: int

    @property
    def anchor_stage(self) -> Stage:
        """The stage that decides the structure."""
        return self.stages[self.anchor]

    @property
    def flops(self) -> float:
        """Floating-point operations of one call."""
        return sum(stage.points * stage.flops_per_point for stage in self.stages)
