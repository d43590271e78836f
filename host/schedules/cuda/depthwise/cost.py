"""Estimated time of a convolution of each channel by itself on a GPU.

As in `cuda.tiled.cost`, each level of memory has its traffic (Roller, OSDI'22) and blocks run in waves. A
block is bound by the issue of instructions or by what passes through the first-level cache; alone it also
waits for its loads. The terms for waiting are ours.
"""

from __future__ import annotations

import math

from host.schedules.cuda.depthwise.tiles import Tiling
from host.schedules.cuda.multiprocessor import Occupancy, Work, bandwidth, occupancy, waves
from targets import GpuModel

# Instructions of a thread around a load of the image (address, conditions), of a load of weights, of a result
# (bias, activation, rounding), and at its start.
_LOAD_INSTRUCTIONS, _WEIGHT_INSTRUCTIONS, _RESULT_INSTRUCTIONS, _START_INSTRUCTIONS = 6.0, 1.5, 3.0, 40.0
# Instructions that convert a half, and that turn four words of bytes.
_CONVERSION, _TURN = 1.0, 8.0
# Loads of a thread that are on their way at once, and bytes that the first-level cache gives in a cycle.
_AT_ONCE, _CACHE_BYTES = 8.0, 64.0
# What sums in halves have to gain, since they make results less exact.
_LEAST_GAIN = 1.02
# Share of the smaller terms that does not hide behind the largest.
_EXPOSED = 0.1


def cuda_depthwise_seconds(tiling: Tiling, gpu: GpuModel) -> float:
    """Estimated seconds of one call of a program of the `cuda_depthwise` rule."""
    placed = occupancy(gpu, tiling.grid, tiling.threads, tiling.registers, 0)
    compute = waves(gpu, placed, _work(tiling, gpu)) / gpu.frequency_hz
    l2_seconds = _l2_bytes(tiling, placed) / gpu.level("L2").bandwidth_bytes_per_s
    resident = min(placed.grid, gpu.multiprocessors * placed.per_multiprocessor) * tiling.threads
    coming = resident * _AT_ONCE * tiling.width * tiling.window.image.element_bytes
    dram_seconds = _dram_bytes(tiling) / bandwidth(gpu, coming)
    longest = max(compute, l2_seconds, dram_seconds)
    total = compute + l2_seconds + dram_seconds
    seconds = longest + _EXPOSED * (total - longest) + gpu.launch_s
    return seconds if tiling.single or tiling.window.bytes else seconds * _LEAST_GAIN


def _loads(tiling: Tiling) -> tuple[int, int]:
    """Vectors that a thread loads of the image and of the weights."""
    return tiling.places, tiling.window.taps


def _instructions(tiling: Tiling) -> float:
    """Instructions of a thread."""
    window, words = tiling.window, tiling.words
    image, weights = _loads(tiling)
    found = image * _LOAD_INSTRUCTIONS + weights * _WEIGHT_INSTRUCTIONS
    found += tiling.results * tiling.width * _RESULT_INSTRUCTIONS + _START_INSTRUCTIONS
    if window.bytes:
        turned = tiling.groups * (tiling.column_places + window.columns.taps) * words * _TURN
        dots = tiling.groups * window.columns.taps * tiling.results * tiling.width
        return found + turned + dots
    if tiling.single:
        return (
            found
            + (image + weights) * tiling.width * _CONVERSION
            + (window.taps * tiling.results * tiling.width)
        )
    runs = 1 if tiling.whole else window.rows.taps
    return found + tiling.results * (window.taps * words + runs * tiling.width * (_CONVERSION + 1.0))


def _work(tiling: Tiling, gpu: GpuModel) -> Work:
    """The cycles of one block, with other blocks beside it and alone."""
    warps = -(-tiling.threads // gpu.warp)
    scheduled = max(1.0, warps / gpu.partitions)
    image, weights = _loads(tiling)
    issue = _instructions(tiling) * scheduled
    vector = tiling.width * tiling.window.image.element_bytes
    loaded = (image + weights) * vector * tiling.threads / _CACHE_BYTES
    busy = max(issue, loaded) + _EXPOSED * min(issue, loaded)
    latency = gpu.level("L2").latency_s * gpu.frequency_hz
    turns = math.ceil((image + weights) / _AT_ONCE)
    return Work(busy, busy + latency * turns)


def _l2_bytes(tiling: Tiling, placed: Occupancy) -> float:
    """Bytes between L2 and the multiprocessors.

    Threads of a block share columns of the image; its first-level cache holds those, and rows in part.
    """
    window = tiling.window
    side = window.rows
    once = min(1.0, side.stride / max(1, side.taps * side.distance)) if side.taps > 1 else 1.0
    again = tiling.row_places / (tiling.rows * side.stride) if once < 1.0 else 1.0
    weights = placed.grid * min(window.channels, tiling.threads * tiling.width) * window.taps
    image = window.image.elements * again * window.image.element_bytes
    return image + weights * window.weights.element_bytes + _written(tiling)


def _written(tiling: Tiling) -> float:
    return float(tiling.window.result.elements * tiling.window.result.element_bytes)


def _dram_bytes(tiling: Tiling) -> float:
    """Bytes from DRAM: each buffer once; neighbouring rows are read while L2 holds them."""
    window = tiling.window
    parts = (window.image, window.weights, window.result)
    return float(sum(access.elements * access.element_bytes for access in parts))
