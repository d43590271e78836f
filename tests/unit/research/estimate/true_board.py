"""A board that differs from its hardware model in a known way, and small tasks for it."""

from __future__ import annotations

from host.schedules import DesignSpace, space_for
from tests.unit.schedules import functions as fn

# Its memory is slower and its tiles cost more than its hardware model says.
TRUTH = (
    ("hardware.L2", -0.8),
    ("hardware.issue_width", -0.4),
    ("streams.operations_per_cycle", -0.7),
    ("tiled.tile_overhead", 1.0),
)
TAUGHT = [(64, 512, 512), (196, 384, 192), (49, 768, 256), (128, 128, 1024)]
WITHHELD = [(96, 640, 320), (25, 1024, 512)]


def spaces_of(sizes: list[tuple[int, int, int]]) -> list[DesignSpace]:
    """Spaces of products of these sizes, and of softmax over as many columns."""
    hardware = fn.board(restrict="avx2").hardware
    functions = [fn.dense(*size, lanes=8) for size in sizes] + [fn.softmax(40, size[1]) for size in sizes]
    return [space_for(fn.task(function), hardware) for function in functions]
