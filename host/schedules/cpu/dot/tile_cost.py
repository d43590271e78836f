"""Estimated time of products in registers of matrices."""

from __future__ import annotations

import math

from host.schedules.api import Decisions
from host.schedules.constants import EstimateConstant
from host.schedules.cpu.dot.tiles import product_of
from host.schedules.cpu.tiled.cost import nest_seconds, weight_cycles
from host.schedules.cpu.tiled.roles import Roles, counts_of, outer_iterations, parallel_chunks, roles_of
from host.schedules.workload import Stage, Workload
from host.tensor_ir.tiles.registers import TileProduct
from targets import HardwareModel, MatrixTiles

# Cycles of a product of few rows: by hand, products of 1 to 8 rows take 13 cycles each with 16 rows of the
# second operand and 10 with four, 12 rows 17 and 12, 16 rows 19 and 15 (a Xeon with AMX at 3.2 GHz).
_LEAST_CYCLES = EstimateConstant("dot.tile_least", 12.0)
# Cycles around a tile beside its products: addresses, setting sums to zero, the pipeline that fills.
_OVERHEAD_CYCLES = EstimateConstant("dot.tile_overhead", 40.0)
# Cycles of what follows for each vector of sums, with a load from the first level.
_FOLLOWING_CYCLES = EstimateConstant("dot.tile_following", 2.5)
# Units of multiply-adds of such processors: where fewer or more were measured, the clock is another.
_UNITS = 2.0

# Cycles of fetching a line ahead, in each tile of rows again, and the share of the weights' way that the
# processor's own fetching leaves open. By hand, layers of ResNet-50 in turn with other weights, beside other
# work: 3x3 of 7x7x512 in one tile of rows 162 us and 130 with fetching, 49 x 2048 by 512 74 and 59; of
# several tiles of rows 3x3 of 14x14x256 101 and 107.
_FETCHED_CYCLES = EstimateConstant("dot.tile_fetched", 0.5)
_NOT_FETCHED = EstimateConstant("dot.tile_not_fetched", 0.2)

TILE_CONSTANTS = (_LEAST_CYCLES, _OVERHEAD_CYCLES, _FOLLOWING_CYCLES, _FETCHED_CYCLES, _NOT_FETCHED)


def tile_seconds(lanes: Workload, hardware: HardwareModel, threads: int, values: Decisions) -> float:
    """Estimated seconds of one call of a program of the `dot` rule with tiles.

    Args:
        lanes: the workload with groups as elements.
        hardware: the processor.
        threads: that share the call.
        values: of the decisions.
    """
    anchor = lanes.anchor_stage
    roles = roles_of(anchor, hardware)
    assert roles is not None
    key = tuple(values[name] for name in ("vectors", "rows", "rows2", "fetch") if name in values)
    known = anchor.known("dot.tiles", hardware)
    cycles: float | None = known.get(key)
    if cycles is None:
        cycles = known[key] = _cycles(anchor, roles, hardware, values)
    tiles = hardware.matrix_tiles
    assert tiles is not None
    chunks = parallel_chunks(anchor, roles, counts_of(roles, values), threads) if threads > 1 else 1
    cycles += tiles.configure_cycles * chunks
    seconds = cycles * _UNITS / hardware.fma_per_cycle / hardware.frequency_hz
    return nest_seconds(lanes, roles, hardware, threads, values, seconds)


def _cycles(anchor: Stage, roles: Roles, hardware: HardwareModel, values: Decisions) -> float:
    """Cycles of one thread in all tiles."""
    tiles = hardware.matrix_tiles
    assert tiles is not None
    panels, seconds = roles.groups // values["vectors"], roles.second_total // values["rows2"]
    total = 0.0
    whole, rest = divmod(roles.row_total, values["rows"])
    for count, rows in ((whole, values["rows"]), (1 if rest else 0, rest)):
        if not count:
            continue
        product = product_of(anchor, roles, rows, values["rows2"], values["vectors"])
        assert product is not None, "the program is legal"
        one = _tile_cycles(product, tiles, hardware)
        if rows == rest:
            one += 2.0 * tiles.configure_cycles
        if values.get("fetch"):
            one += _FETCHED_CYCLES.on(hardware) * roles.depth * values["vectors"]
        total += count * one
    total *= panels * seconds * outer_iterations(anchor, roles)
    # Weights come while the first tile of their panels is computed, as in the rule `tiled`.
    first = product_of(
        anchor, roles, min(values["rows"], roles.row_total), values["rows2"], values["vectors"]
    )
    assert first is not None
    coming = weight_cycles(anchor, roles, hardware, values["vectors"])
    exposed = 0.0 if values.get("fetch") else _NOT_FETCHED.on(hardware) * coming
    return total + panels * (exposed + max(0.0, coming - _tile_cycles(first, tiles, hardware)))


def _tile_cycles(product: TileProduct, tiles: MatrixTiles, hardware: HardwareModel) -> float:
    """Cycles of one tile over its sum, with what follows it."""
    least, panels = _LEAST_CYCLES.on(hardware), len(product.panels)
    heights = [height for _, _, height in product.rows]
    outer = math.prod(loop.extent for loop in product.loops)
    cycles = 0.0
    whole = product.groups // product.step
    for count, groups in ((whole, product.step), (1 if product.rest else 0, product.rest)):
        multiplied = panels * sum(max(least, tiles.row_cycles * height) for height in heights)
        loaded = tiles.load_row_cycles * (sum(heights) + panels * groups)
        cycles += outer * count * max(multiplied, loaded)
    vectors = sum(heights) * panels
    return (
        cycles
        + _OVERHEAD_CYCLES.on(hardware)
        + vectors * (tiles.store_row_cycles + _FOLLOWING_CYCLES.on(hardware))
    )
