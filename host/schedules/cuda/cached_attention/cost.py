"""Estimated time of attention over a cache on a GPU: memory bounds a step, arithmetic a prefill."""

from __future__ import annotations

from host.lowering.decoding.shape import CacheShape
from host.schedules.cuda.cached_attention.program import AttentionTiles
from host.schedules.cuda.multiprocessor import LOADS_IN_FLIGHT, Work, bandwidth, occupancy, waves
from host.schedules.cuda.scripts import WARP
from targets import GpuModel

# Share of the cache that a call reads on the average of a text, as on CPUs (`cpu/cached_attention`).
_FILLED = 0.5
# Instructions around a multiply-add of both products: the element of the cache, and a row's from shared
# memory or from another lane.
_LOAD_INSTRUCTIONS, _ROW_INSTRUCTIONS = 3.0, 2.0
# Instructions of a chunk for each row: two exchanges of five steps, exponents, sums computed again.
_CHUNK_INSTRUCTIONS = 50.0
# Cycles of an exchange between the registers of a warp, of which the two of a row follow one another.
_EXCHANGES_CYCLES = 10 * 25.0


def cached_attention_seconds(shape: CacheShape, tiles: AttentionTiles, gpu: GpuModel) -> float:
    """Estimated seconds of one call of a program of the `cuda_cached_attention` rule."""
    tile, size = tiles.tile, shape.size
    blocks = shape.key_heads * (shape.rows * shape.group // tile) * tiles.splits
    positions = max(float(WARP), shape.capacity * _FILLED)
    if shape.window:
        positions = min(positions, float(shape.window))
    chunks = -(-positions // WARP)
    turns = -(-chunks // (tiles.warps * tiles.splits))
    each = tiles.elements(size)
    products = size * (_LOAD_INSTRUCTIONS + tile * _ROW_INSTRUCTIONS)
    products += WARP * each * (_LOAD_INSTRUCTIONS + tile * _ROW_INSTRUCTIONS)
    chunk = products + tile * _CHUNK_INSTRUCTIONS
    joining = tile * size / WARP * 8.0
    scheduled = max(1.0, tiles.warps / gpu.partitions)
    # A few loads of a thread are on their way at once: the compiler unrolls the loops over elements by four.
    waiting = (size + WARP * each) / LOADS_IN_FLIGHT * gpu.level("L2").latency_s * gpu.frequency_hz
    busy = (turns * chunk + joining) * scheduled
    alone = turns * max(chunk * scheduled + tile * _EXCHANGES_CYCLES, waiting) + joining * scheduled
    placed = occupancy(gpu, blocks, tiles.warps * WARP, tiles.registers(size), tiles.shared_bytes(size))
    compute = waves(gpu, placed, Work(busy, alone)) / gpu.frequency_hz
    element = 2.0 if shape.kept == "float16" else 4.0
    moved = 2.0 * shape.key_heads * positions * size * element
    resident = min(blocks, placed.per_multiprocessor * gpu.multiprocessors) * tiles.warps * WARP
    loaded = moved / bandwidth(gpu, resident * LOADS_IN_FLIGHT * element)
    # Blocks with other rows of the same head read it out of L2.
    again = moved * blocks / (shape.key_heads * tiles.splits) / gpu.level("L2").bandwidth_bytes_per_s
    seconds = max(compute, loaded, again)
    kernels = 2 if tiles.splits == 1 else 3
    parts = 8.0 * shape.rows * shape.heads * size * tiles.splits if tiles.splits > 1 else 0.0
    return seconds + parts / gpu.level("L2").bandwidth_bytes_per_s + kernels * gpu.launch_s
