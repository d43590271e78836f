"""The sizes of a Winograd convolution, read off its stages."""

from __future__ import annotations

from dataclasses import dataclass

from host.schedules.api import Decisions
from host.schedules.workload import Stage, Workload
from targets import HardwareModel

# Names of the stages that lowering writes, in order.
INPUT = ("input_columns", "input_rows")
WEIGHT = ("weight_columns", "weight_rows")
PRODUCT = "winograd"
OUTPUT = ("output_columns", "output_rows")
# How a padded input is read: from a padded copy, or from the input itself where each element is tested.
PAD_COPY, PAD_TEST = 0, 1


@dataclass(frozen=True)
class WinogradShape:
    """A convolution by tiles.

    Attributes:
        size: values along each side of a transformed tile.
        outputs: results along each side of a tile.
        batch: images.
        down, across: tiles per column and per row of an image.
        channels_in: input channels.
        blocks: vectors of output channels.
        lanes: output channels of one vector.
        input_lanes: input channels of one vector.
        pads: stages before the first transform.
        result: the stage that writes the result; it and those before it follow the last transform.
        tails: stages between the last transform and the result.
    """

    size: int
    outputs: int
    batch: int
    down: int
    across: int
    channels_in: int
    blocks: int
    lanes: int
    input_lanes: int
    pads: tuple[Stage, ...]
    result: Stage
    tails: tuple[str, ...]

    @property
    def tiles(self) -> int:
        """Tiles of the whole batch."""
        return self.batch * self.down * self.across

    def strips(self, values: Decisions) -> int:
        """Parts of an image whose transformed input is kept at once."""
        return self.down // (values["tiles"] * values["span"])


def winograd_shape(workload: Workload, hardware: HardwareModel) -> WinogradShape | None:
    """The convolution that a workload computes by tiles, or None if it is something else."""
    stages = {stage.name: stage for stage in workload.stages}
    if not {*INPUT, *WEIGHT, PRODUCT, *OUTPUT} <= stages.keys():
        return None
    names = list(stages)
    first, last = names.index(INPUT[0]), names.index(OUTPUT[1])
    result = workload.stages[-1]
    if last == len(names) - 1 or len(result.axes) != 4:
        return None
    outputs = stages[OUTPUT[1]].axes[0].extent
    batch, height, width, channels_out = (axis.extent for axis in result.axes)
    blocks, channels_in, lanes = (axis.extent for axis in stages[WEIGHT[1]].axes[2:])
    down, across = -(-height // outputs), -(-width // outputs)
    if batch * down * across != stages[PRODUCT].axes[2].extent or channels_out != blocks * lanes:
        return None
    input_lanes = hardware.lanes
    while channels_in % input_lanes:
        input_lanes //= 2
    return WinogradShape(
        size=stages[PRODUCT].axes[0].extent,
        outputs=outputs,
        batch=batch,
        down=down,
        across=across,
        channels_in=channels_in,
        blocks=blocks,
        lanes=lanes,
        input_lanes=input_lanes,
        pads=workload.stages[:first],
        result=result,
        tails=tuple(names[last + 1 : -1]),
    )
