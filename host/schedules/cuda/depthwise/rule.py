"""Convolutions of each channel by itself, of halves and of bytes, on a GPU.

A thread computes `width` neighbouring channels of `rows` x `cols` results. Halves are multiplied by pairs
and the sums of a few taps go to single precision, or with `single` every product does; bytes are added up in
32 bits, four taps at a time.
"""

from __future__ import annotations

from collections.abc import Mapping

from host.schedules.api import GPU, DecisionKind, Decisions, Level, Rule, Sampler, WordClass
from host.schedules.cuda.depthwise.cost import cuda_depthwise_seconds
from host.schedules.cuda.depthwise.instructions import STORED_TYPES
from host.schedules.cuda.depthwise.program import Program
from host.schedules.cuda.depthwise.tiles import WORD, tiling_of
from host.schedules.cuda.depthwise.window import Window, window_of
from host.schedules.cuda.epilogue import inlined
from host.schedules.cuda.image_windows import THREADS, TILE_COLUMNS, TILE_ROWS, up_to
from host.schedules.cuda.multiprocessor import gpu_of
from host.schedules.workload import Workload
from targets import HardwareModel

# Bound on products of vectors that are written out one after the other: code beyond it leaves the
# instruction cache.
_MOST_PRODUCTS = 160


class CudaDepthwise(Rule):
    """Every thread has neighbouring channels of a few results, and needs no shared memory."""

    name = "cuda_depthwise"
    processor = GPU
    version = 1
    priority = 9
    traced = False
    decisions = (
        DecisionKind("width", Level.REGISTER, WordClass.TILE),
        DecisionKind("rows", Level.REGISTER, WordClass.TILE),
        DecisionKind("cols", Level.REGISTER, WordClass.TILE),
        DecisionKind("single", Level.REGISTER, WordClass.SWITCH),
        DecisionKind("threads", Level.BLOCK, WordClass.PARALLEL),
    )

    def matches(self, workload: Workload, hardware: HardwareModel) -> bool:
        """A convolution of each channel by itself of halves or bytes, with channels side by side."""
        window = window_of(workload)
        return hardware.gpu is not None and window is not None and window.result.type.name in STORED_TYPES

    def choices(self, workload: Workload, hardware: HardwareModel) -> Mapping[str, tuple[int, ...]]:
        """The tile of a thread, the precision of its sums, and threads of a block."""
        window = _window(workload)
        least = WORD // min(window.image.element_bytes, window.result.element_bytes)
        rows = (1,) if window.bytes or window.rows.axis is None else TILE_ROWS
        return {
            "width": tuple(size for size in (2, 4, 8, 16) if least <= size <= window.width),
            "rows": up_to(rows, window.rows.extent),
            "cols": up_to(TILE_COLUMNS, window.columns.extent),
            "single": (0,) if window.bytes else (0, 1),
            "threads": THREADS,
        }

    def legal(self, workload: Workload, hardware: HardwareModel, values: Decisions) -> bool:
        """Registers and threads are within the GPU's, and the code within the instruction cache."""
        window, gpu = _window(workload), gpu_of(hardware)
        tiling = tiling_of(window, values)
        if tiling.results * window.taps > _MOST_PRODUCTS or (tiling.rows > 1 and not tiling.whole):
            return False
        return tiling.fits(gpu)

    def apply(self, sampler: Sampler, workload: Workload, hardware: HardwareModel, threads: int) -> None:
        """Puts the nest of blocks and threads in the place of the function's body."""
        schedule, window = sampler.schedule, _window(workload)
        for kind in self.decisions:
            sampler.sample(kind.name)
        elements, epilogue = inlined(schedule, workload, window.channels)
        image, weights = elements[window.image_position], elements[1 - window.image_position]
        Program(tiling_of(window, sampler.values), image, weights, epilogue).put_into(schedule)

    def estimate_s(
        self, workload: Workload, hardware: HardwareModel, threads: int, values: Decisions
    ) -> float:
        """Estimated seconds of one call, see `cost`."""
        return cuda_depthwise_seconds(tiling_of(_window(workload), values), gpu_of(hardware))


def _window(workload: Workload) -> Window:
    window = window_of(workload)
    assert window is not None, "the rule matched before"
    return window


RULE = CudaDepthwise()
