"""Estimated time of pooling on a GPU, as of convolutions of each channel (`cuda.depthwise.cost`)."""

from __future__ import annotations

import math

from host.schedules.cuda.multiprocessor import Work, bandwidth, occupancy, waves
from host.schedules.cuda.windows.tiles import Tiling
from targets import GpuModel

# Instructions of a thread around a load of the image (address, conditions), of a result (rounding and what
# follows), and at its start.
_LOAD_INSTRUCTIONS, _RESULT_INSTRUCTIONS, _START_INSTRUCTIONS = 6.0, 3.0, 40.0
# Loads of a thread that are on their way at once, and bytes that the first-level cache gives in a cycle.
_AT_ONCE, _CACHE_BYTES = 8.0, 64.0
# Share of the smaller terms that does not hide behind the largest.
_EXPOSED = 0.1
# Bytes of a number that is combined without being converted.
_WIDE = 4


def cuda_windows_seconds(tiling: Tiling, gpu: GpuModel) -> float:
    """Estimated seconds of one call of a program of the `cuda_windows` rule."""
    placed = occupancy(gpu, tiling.grid, tiling.threads, tiling.registers, 0)
    compute = waves(gpu, placed, _work(tiling, gpu)) / gpu.frequency_hz
    image, result = tiling.window.image, tiling.window.result
    written = result.elements * result.element_bytes
    read = image.elements * image.element_bytes
    l2_seconds = (read * _again(tiling) + written) / gpu.level("L2").bandwidth_bytes_per_s
    resident = min(placed.grid, gpu.multiprocessors * placed.per_multiprocessor) * tiling.threads
    coming = resident * min(_AT_ONCE, tiling.written_places) * tiling.width * image.element_bytes
    # Of an image whose windows leave places out, whole transactions are read all the same.
    dram_seconds = (read + written) / bandwidth(gpu, coming)
    longest = max(compute, l2_seconds, dram_seconds)
    total = compute + l2_seconds + dram_seconds
    return longest + _EXPOSED * (total - longest) + gpu.launch_s


def _instructions(tiling: Tiling) -> float:
    """Instructions of a thread."""
    pool, width = tiling.window, tiling.width
    converted = width if pool.image.element_bytes < _WIDE else 0
    along = tiling.columns * (pool.columns.taps - 1) * width * tiling.row_places
    between = tiling.results * pool.rows.taps * width
    found = tiling.places * (_LOAD_INSTRUCTIONS + converted) + along + between
    return found + tiling.results * width * _RESULT_INSTRUCTIONS + _START_INSTRUCTIONS


def _work(tiling: Tiling, gpu: GpuModel) -> Work:
    """The cycles of one block, with other blocks beside it and alone."""
    warps = -(-tiling.threads // gpu.warp)
    issue = _instructions(tiling) * max(1.0, warps / gpu.partitions)
    vector = tiling.width * tiling.window.image.element_bytes
    loaded = tiling.places * vector * tiling.threads / _CACHE_BYTES
    busy = max(issue, loaded) + _EXPOSED * min(issue, loaded)
    latency = gpu.level("L2").latency_s * gpu.frequency_hz
    turns = math.ceil(tiling.places / min(_AT_ONCE, tiling.written_places))
    return Work(busy, busy + latency * turns)


def _again(tiling: Tiling) -> float:
    """How often L2 gives an element of the image: blocks share columns in the first-level cache, not rows."""
    side = tiling.window.rows
    return max(1.0, tiling.row_places / (tiling.rows * side.stride))
