"""Estimated time of a scatter on a GPU: its three kernels, which memory bounds."""

from __future__ import annotations

from host.lowering.types import numeric_type
from host.schedules.cuda.multiprocessor import STREAM_REGISTERS, bandwidth, occupancy, start_cycles
from host.schedules.cuda.scripts import WARP
from host.schedules.scatter import Scatter
from targets import GpuModel

# Bytes of a number of a place, of a head of a list, and of the next update in it.
_PLACE, _HEAD, _NEXT = 8.0, 4.0, 4.0


def scatter_seconds(scatter: Scatter, gpu: GpuModel, warps: int) -> float:
    """Estimated seconds of one call of a program of the `cuda_scatter` rule.

    Updates are taken to be spread over the places evenly: a thread follows a list of their mean length, one
    access of memory after the other.
    """
    element = float(numeric_type(scatter.dtype).bytes)
    length = scatter.entries / scatter.lists
    updates = scatter.outer * scatter.count * scatter.inner * element
    listed = scatter.entries * (_PLACE * len(scatter.strides) + _HEAD + _NEXT)
    combined = scatter.lists * _HEAD + scatter.entries * _NEXT + 2 * scatter.results * element + updates
    # Each update of a list is found by another walk along it; a thread goes on when the last one ends.
    walks = 1.0 + length if scatter.reduction != "update" else 1.0
    steps = (1.0 + length) * walks
    parts = (
        (scatter.lists, scatter.lists * _HEAD, 1.0),
        (scatter.entries, listed, 2.0),
        (scatter.results, combined, 1.0 + steps),
    )
    seconds = sum(_kernel(count, moved, waits, gpu, warps) for count, moved, waits in parts)
    return seconds + gpu.launch_s + 2 * gpu.next_launch_s


def _kernel(count: int, moved: float, waits: float, gpu: GpuModel, warps: int) -> float:
    """Seconds of a kernel without its start.

    Args:
        count: of its threads.
        moved: bytes.
        waits: accesses of a thread that follow one another.
        gpu: the GPU.
        warps: of a block.
    """
    threads = warps * WARP
    grid = -(-count // threads)
    placed = occupancy(gpu, grid, threads, STREAM_REGISTERS, 0)
    slots = placed.per_multiprocessor * gpu.multiprocessors
    resident = min(grid, slots) * threads
    blocks, starts = (cycles / gpu.frequency_hz for cycles in start_cycles(gpu, grid, threads))
    waves = -(-grid // slots)
    waiting = waves * waits * gpu.level("L2").latency_s
    return max(moved / bandwidth(gpu, resident * 4.0), blocks, waiting) + starts
