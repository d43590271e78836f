"""Estimated time of a product of few rows with a quantised weight, which memory bounds."""

from __future__ import annotations

from host.schedules.cuda.multiprocessor import Work, bandwidth, occupancy, waves
from host.schedules.cuda.quantised.program import CHUNK_BYTES, RowProduct, RowTiles
from host.schedules.cuda.scripts import WARP
from targets import GpuModel

# Instructions: of a number (shift, mask and head in one), around a chunk of a row (address, load, scale), and
# of the exchange of one sum.
_NUMBER, _CHUNK, _EXCHANGE = 2.0, 12.0, 10.0
# Cycles of a step of an exchange.
_STEP_CYCLES = 25.0
# Bytes of scales beside those of weights: two for each 32 elements.
_SCALES = 2.0 / 32.0


def row_product_seconds(product: RowProduct, tiles: RowTiles, gpu: GpuModel) -> float:
    """Estimated seconds of one call of a program of the `cuda_quantised` rule."""
    count, rows, chunk = product.count, tiles.rows, product.chunk
    # Loads of four activations, and their sums.
    shared = count * chunk * (0.25 + 1.0)
    own = rows * (chunk * (_NUMBER + count) + _CHUNK + 3.0 * count)
    exchanged = rows * count * _EXCHANGE
    scheduled = max(1.0, tiles.warps / gpu.partitions)
    latency = (gpu.level("DRAM").latency_s + gpu.level("L2").latency_s) * gpu.frequency_hz
    busy = (product.turns * (shared + own) + exchanged) * scheduled
    alone = product.turns * ((shared + own) * scheduled + latency) + 5 * _STEP_CYCLES + exchanged * scheduled
    grid = -(-product.columns // (rows * tiles.warps))
    placed = occupancy(gpu, grid, tiles.warps * WARP, tiles.registers(count, chunk), 0)
    compute = waves(gpu, placed, Work(busy, alone)) / gpu.frequency_hz
    moved = product.columns * product.depth * (product.bits / 8.0 + _SCALES)
    resident = min(grid, placed.per_multiprocessor * gpu.multiprocessors) * tiles.warps * WARP
    # Every block reads the activations, out of L2.
    read = 4.0 * count * product.depth * grid * tiles.warps / gpu.level("L2").bandwidth_bytes_per_s
    return max(compute, moved / bandwidth(gpu, resident * rows * CHUNK_BYTES), read) + gpu.launch_s
