"""What the schedule and the estimate read off a depthwise convolution of bytes."""

from __future__ import annotations

from dataclasses import dataclass

from host.lowering.ops.contraction.depthwise_dots import INTERLEAVED, ROWS, SUMS
from host.schedules.workload import Access, Stage, Workload
from targets import HardwareModel

# Of a vector of 128 bits.
_REGISTER_BYTES = 16


@dataclass(frozen=True)
class Shape:
    """Sizes of a convolution.

    Attributes:
        batch, bands, rows, width, channels: of the sums; `rows` are those of a band.
        groups, taps: of four rows, and across.
        columns: of the interleaved rows.
        lanes: of a vector.
        padded: whether the image has a border.
        signed: whether its bytes have a sign.
    """

    batch: int
    bands: int
    rows: int
    width: int
    channels: int
    groups: int
    taps: int
    columns: int
    lanes: int
    padded: bool
    signed: bool

    @property
    def vectors(self) -> int:
        """Vectors of all channels."""
        return self.channels // self.lanes


def joined_lanes(shape: Shape, vectors: int, hardware: HardwareModel) -> int:
    """Channels whose bytes are interleaved, and whose results are narrowed, at once.

    Those of one vector of sums; on processors with vectors of 128 bits those of a tile, up to a register of
    bytes, where they are a power of two.
    """
    wide = shape.lanes * vectors
    fits = wide <= _REGISTER_BYTES and wide & (wide - 1) == 0
    return wide if fits and hardware.vector_bits <= 8 * _REGISTER_BYTES else shape.lanes


def is_lane_dots(workload: Workload) -> bool:
    """Whether a function is a depthwise convolution by dot products; its blocks have these names."""
    return {INTERLEAVED, SUMS, ROWS} <= {stage.name for stage in workload.stages}


def shape_of(workload: Workload) -> Shape:
    """The sizes of a convolution for which `is_lane_dots` holds."""
    sums, interleaved = workload.stage(SUMS), workload.stage(INTERLEAVED)
    batch, bands, rows, width, channels, groups, taps = (axis.extent for axis in sums.axes[:7])
    [weight] = (access for access in sums.reads if access.buffer != interleaved.write.buffer)
    columns, lanes = interleaved.axes[3].extent, weight.shape[-2]
    padded = any(stage.kind == "padding" for stage in workload.stages)
    # What is interleaved is moved by padding or is the image itself.
    signed = any(access.type.name == "int8" for access in interleaved.reads)
    return Shape(batch, bands, rows, width, channels, groups, taps, columns, lanes, padded, signed)


def joined(workload: Workload) -> bool:
    """Whether what follows the rows is one result, every element of which is made of the same one of them."""
    names = [stage.name for stage in workload.stages]
    after = workload.stages[names.index(ROWS) :]
    made = {stage.write.buffer for stage in after}
    read = {access.buffer for stage in after for access in stage.reads if access.buffer in made}
    shape = after[0].write.shape
    if len(made) - len(read) != 1:
        return False
    for number, stage in enumerate(after):
        accesses = [access for access in stage.reads if access.buffer in made] if number else []
        if stage.write.shape != shape or not all(map(_in_place, [*accesses, stage.write])):
            return False
        if not _has_axes(stage, shape):
            return False
    return True


def _has_axes(stage: Stage, shape: tuple[int, ...]) -> bool:
    return tuple(axis.extent for axis in stage.axes) == shape and not stage.reduction


def _in_place(access: Access) -> bool:
    """Whether each axis moves through its own dimension alone, step by step."""
    for axis, moves in enumerate(access.moves):
        own = tuple(int(dim == axis) for dim in range(len(access.shape)))
        if any(move.steps != own for move in moves):
            return False
    return not access.data_dependent and not any(access.origin)
