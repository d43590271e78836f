"""Estimated time of dot products."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from host.lowering.types import BFLOAT16
from host.schedules.api import Decisions
from host.schedules.constants import EstimateConstant
from host.schedules.cpu.dot.intrinsics import INSTRUCTION, TILES, steps_together
from host.schedules.cpu.dot.stage import dot_kind, in_lanes
from host.schedules.cpu.dot.tile_cost import TILE_CONSTANTS, tile_seconds
from host.schedules.cpu.tiled.cost import CONSTANTS as TILED_CONSTANTS
from host.schedules.cpu.tiled.cost import STEPS_LOADED, tiled_seconds
from host.schedules.workload import Workload
from targets import HardwareModel

# Multiply-adds in whose time plain code does one product of a group for a vector of sums, and in whose time
# it widens the weights of that product, which the rows of a register tile share. By hand, products of 1 to
# 128 rows by 768 x 3072 and three convolutions: 7.0 to 7.5 multiply-adds for groups of four and tiles of 8 to
# 16 rows, 31 for one row; 4.4 and 12.5 for groups of two and tiles of 8 rows and of one (Zen 4).
_PLAIN_PRODUCT = EstimateConstant("dot.plain_product", 1.5)
_PLAIN_WIDENING = EstimateConstant("dot.plain_widening", 5.5)
# Multiply-adds in whose time VPMADDWD and its addition are done: by hand, products of 128 x 768 by 768 x 768
# took 0.64 of fp32's time with half of the operations. The result dot_products_avx2 has 0.67 to 0.93 for four
# direct products, on a machine that shares its hardware.
_PAIR_OPERATIONS = EstimateConstant("dot.pair_operations", 1.27, spread=0.2)
# Slow-down of VDPBF16PS where a tile is one vector wide: LLVM then lets every instruction load and broadcast
# its activations itself. By hand, products of 196 x 1024 by 1024 x 256 with tiles of 14 x 1 and of 7 x 2
# vectors had 176 and 232 GFLOP/s on Zen 4.
_ONE_VECTOR = EstimateConstant("dot.one_vector", 1.33, neutral=1.0)

CONSTANTS = (
    _PLAIN_PRODUCT,
    _PLAIN_WIDENING,
    _PAIR_OPERATIONS,
    _ONE_VECTOR,
    *TILE_CONSTANTS,
    *TILED_CONSTANTS,
)


def dot_seconds(workload: Workload, hardware: HardwareModel, threads: int, values: Decisions) -> float:
    """Estimated seconds of one call of a program of the `dot` rule.

    The instruction starts about as often as a fused multiply-add (that of bfloat16 numbers as often as the
    processor's description says) and does the work of a group: with groups as elements the estimate is that
    of `tiled`. Where the instruction takes one group of a vector for all lanes, one load brings several.
    """
    kind = dot_kind(workload.anchor_stage, hardware)
    if values["intrinsic"] == TILES:
        return tile_seconds(in_lanes(workload), hardware, threads, values)
    if kind == BFLOAT16 and hardware.bfloat16 is not None:
        unit = hardware.bfloat16
        rate = unit.per_cycle if values["vectors"] > 1 else unit.per_cycle / _ONE_VECTOR.on(hardware)
        hardware = _at_rate(hardware, rate, unit.latency_cycles)
        return tiled_seconds(in_lanes(workload), hardware, threads, values)
    group = workload.anchor_stage.axes[-1].extent
    operations = _PAIR_OPERATIONS.on(hardware) if kind == "s16s16" else 1.0
    if values["intrinsic"] != INSTRUCTION:
        widening = _PLAIN_WIDENING.on(hardware) / (values["rows"] * values["rows2"])
        operations = group * (_PLAIN_PRODUCT.on(hardware) + widening)
    elif (steps := steps_together(kind, values["unroll"])) > 1:
        values = {**values, STEPS_LOADED: steps}
    hardware = _at_rate(hardware, hardware.fma_per_cycle / operations, hardware.fma_latency_cycles)
    return tiled_seconds(in_lanes(workload), hardware, threads, values)


@lru_cache(maxsize=256)
def _at_rate(hardware: HardwareModel, fma_per_cycle: float, latency_cycles: float) -> HardwareModel:
    """A processor with other multiply-adds; one object, so that programs share parts of their estimates."""
    return replace(hardware, fma_per_cycle=fma_per_cycle, fma_latency_cycles=latency_cycles)
