"""How often a warp passes over the banks of shared memory for one load."""

from __future__ import annotations

from host.schedules.api import Decisions
from host.schedules.cuda.tiled.roles import CudaRoles, row_pitch, staged_tile
from host.schedules.workload import Access, Stage
from targets import GpuModel


def passes(
    anchor: Stage, roles: CudaRoles, access: Access, gpu: GpuModel, values: Decisions, width: int
) -> float:
    """Passes of the first warp of a block for one load of `width` elements of an operand.

    From shared memory, each pass serves one word of every bank to all threads that want it; words of one
    bank that differ take further passes. Interleaved virtual threads bring neighbouring threads to
    neighbouring words. From memory, each line takes a pass through the first-level cache.

    Args:
        anchor: the stage.
        roles: of its axes.
        access: the operand.
        gpu: the GPU.
        values: the decisions.
        width: elements that a thread loads at once.
    """
    pitches = _pitches(access, staged_tile(anchor, roles, values) if values["stage"] else None)
    lanes = gpu.warp
    starts = [0]
    for axis, threads, step in (
        (roles.column, values["tx"], values["cols"]),
        (roles.row, values["ty"], values["rows"]),
        (roles.second, values["tz"], values["rows2"]),
    ):
        here = min(threads, lanes)
        lanes = max(1, lanes // threads)
        if axis is not None and here > 1:
            moved = {access.offset(axis, thread * step, pitches) for thread in range(here)}
            starts = [start + more for start in starts for more in moved]
    if not values["stage"]:
        line = gpu.level("shared").line_bytes // access.element_bytes
        return float(len({start // line for start in starts}))
    words = {start + more for start in starts for more in range(width)}
    return float(bank_passes(words, gpu.shared_banks)) * max(1, access.element_bytes // 4)


def bank_passes(words: set[int], banks: int) -> int:
    """Passes that serve a set of words: the most that fall into one bank."""
    counts = [0] * banks
    for word in words:
        counts[word % banks] += 1
    return max(counts, default=0)


def _pitches(access: Access, tile: dict[int, int] | None) -> list[int]:
    """Elements between neighbours along each dimension of the copy of a tile, or of the buffer itself."""
    region = access.shape if tile is None else access.region(tile)
    pitches = [1] * len(region)
    for dim in range(len(region) - 2, -1, -1):
        copied_row = tile is not None and dim == len(region) - 2
        row = row_pitch(access, region) if copied_row else region[dim + 1]
        pitches[dim] = pitches[dim + 1] * row
    return pitches
