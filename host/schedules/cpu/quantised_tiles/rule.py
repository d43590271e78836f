"""Products of many rows with quantised weights, in tiles of bfloat16 numbers (AMX).

Activations are rounded to bfloat16 once: an error of 1 / 512 of itself at most, where activations of 8 bits
have one of 1 / 254 of the largest in their group. Weights are taken apart to it for all rows, a block at a
time: a part of the depth of two panels, while the block before it is multiplied. Besides 1 / 512 of itself, a
weight may be wrong by what single precision rounds off before (`host.tensor_ir.tiles.apart`): nothing where
scales are of half precision and alone; 1 / 512 of the scale, a step between weights, with zero points,
multipliers or scales of single precision; twice that at most with minima. Products that keep 16 bits have two
numbers for each operand: what rounding took off is multiplied too, in three products. Sums stay in the tiles
over the depth of a block.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, ClassVar

import tvm
from tvm import tirx

from host.lowering.quantised import product as parts
from host.lowering.quantised.gating import LEAST_ROWS, MOST_ROWS
from host.lowering.quantised.groups import SCALES
from host.schedules.api import CPU, DecisionKind, Decisions, Level, Rule, Sampler, WordClass
from host.schedules.constants import EstimateConstant
from host.schedules.cpu.common import TILE_ROWS, TILE_VECTORS, divisors
from host.schedules.cpu.quantised_tiles.cost import CONSTANTS, quantised_tiles_seconds
from host.schedules.script import put_script
from host.schedules.workload import Workload
from host.tensor_ir.tiles.apart import MINIMA, SYMMETRIC, ZEROS
from host.tensor_ir.tiles.lines import DEPTH, LANES
from host.tensor_ir.tiles.quantised import QuantisedPanels, TiledRows
from targets import HardwareModel

# Panels that one call of the function takes; the first block of a call is taken apart before any product.
_MOST_PANELS, _MOST_TILES = 64, 2
# Elements of a row of weights that are worth storing sums for.
_LEAST_DEPTH = 128
# Bytes of the two blocks of weights that are taken apart, on the stack.
_MOST_BYTES = 256 << 10


class QuantisedTiles(Rule):
    """Tiles of rows and panels, of which pairs are multiplied together."""

    name = "quantised_tiles"
    processor = CPU
    version = 2
    priority = 5
    traced = False
    constants: ClassVar[tuple[EstimateConstant, ...]] = CONSTANTS
    decisions = (TILE_VECTORS, TILE_ROWS, DecisionKind("depth", Level.BLOCK, WordClass.TILE))
    # Panels of the weight that a panel of the result is made of.
    sharing = 1

    def matches(self, workload: Workload, hardware: HardwareModel) -> bool:
        """The function of such a product, with rows and groups of whole tiles; the stack holds its sums."""
        return parts.OUTPUT in {stage.name for stage in workload.stages} and in_tiles(workload, hardware)

    def choices(self, workload: Workload, hardware: HardwareModel) -> Mapping[str, tuple[int, ...]]:
        """Panels and tiles of rows that registers hold the sums of, and groups whose weights caches hold."""
        rows, panels, groups, _, steps, _, width = (
            axis.extent for axis in workload.stage(parts.DOTS).axes[:7]
        )
        group = steps * width
        return {
            "vectors": divisors(panels // self.sharing, _MOST_PANELS),
            "rows": divisors(rows // LANES, _MOST_TILES),
            "depth": tuple(
                one for one in divisors(groups, groups) if one in (1, groups) or one * group >= _LEAST_DEPTH
            ),
        }

    def legal(self, workload: Workload, hardware: HardwareModel, values: Decisions) -> bool:
        """Both blocks fit the stack."""
        planes, steps, lanes, width = (axis.extent for axis in workload.stage(parts.DOTS).axes[3:7])
        pair = 2 if values["vectors"] * self.sharing % 2 == 0 else 1
        return 2 * pair * values["depth"] * steps * width * lanes * planes * 2 <= _MOST_BYTES

    def apply(self, sampler: Sampler, workload: Workload, hardware: HardwareModel, threads: int) -> None:
        """Puts a loop over tiles of rows, and one over panels, into the place of the function's body."""
        schedule = sampler.schedule
        for decision in self.decisions:
            sampler.sample(decision.name)
        function = schedule.mod["main"]
        buffers = {buffer.name: buffer for buffer in function.params}
        one = self.panels(workload, buffers, sampler.values)
        loop = "T.parallel" if threads > 1 else "T.serial"
        calls = one.columns // LANES // one.wide
        first = _first_panel(schedule)
        addresses = [_address(name, buffers, f"n * {one.wide} + {first}") for name in one.arguments[1:-1]]
        in_tiles_already = str(buffers["data"].dtype) == parts.TILED
        tiles = "data[0, 0, 0, 0]" if in_tiles_already else "tiles[0, 0]"
        result = f"0, vn * {one.wide * LANES}"
        if str(buffers["output"].dtype) == parts.TILED:
            result = f"0, vn * {one.wide * LANES // DEPTH}, 0, 0"
        lines = [] if in_tiles_already else _rounding(one, loop)
        lines += [
            f"for n in {loop}({calls}):",
            f'    with T.sblock("{parts.OUTPUT}"):',
            f"        vn = T.axis.spatial({calls}, n)",
            "        T.reads()",
            "        T.writes()",
            f'        T.evaluate(T.call_extern("int32", "{one.name}", T.address_of({tiles}), '
            + "".join(f"{address}, " for address in addresses)
            + f"T.address_of(output[{result}])))",
        ]
        put_script(schedule, lines, **buffers)

    def estimate_s(
        self, workload: Workload, hardware: HardwareModel, threads: int, values: Decisions
    ) -> float:
        """Estimated seconds of one call, see `cost`."""
        return quantised_tiles_seconds(workload, hardware, threads, values)

    def panels(
        self, workload: Workload, buffers: Mapping[str, tirx.Buffer], values: Decisions
    ) -> QuantisedPanels:
        """The function in LLVM's language that computes the panels of one iteration."""
        return panels_of(workload, buffers, values)


def in_tiles(workload: Workload, hardware: HardwareModel) -> bool:
    """Whether a function is of such products, with rows and groups of whole tiles."""
    tiles = hardware.matrix_tiles
    if not {parts.ROUNDED, parts.DOTS, parts.TOTALS} <= {stage.name for stage in workload.stages}:
        return False
    if tiles is None or not hardware.has_bfloat16_tiles:
        return False
    rows, _, _, planes, steps, lanes, width = (axis.extent for axis in workload.stage(parts.DOTS).axes[:7])
    whole = planes <= 2 and rows % tiles.rows == 0 and steps * width % DEPTH == 0
    fits = LEAST_ROWS <= rows <= MOST_ROWS
    return hardware.dot_product == "u8s8" and lanes == LANES and fits and whole


def _rounding(one: QuantisedPanels, loop: str) -> list[str]:
    """Lines of a loop over rows, which become tiles."""
    rows = TiledRows(one.groups * one.group, one.halves)
    size = rows.depth * rows.halves * LANES
    return [
        f'tiles = T.sblock_alloc_buffer(({one.rows // LANES}, {size}), "uint16")',
        f"for n in {loop}({one.rows // LANES}):",
        f'    with T.sblock("{parts.ROUNDED}"):',
        f"        vn = T.axis.spatial({one.rows // LANES}, n)",
        "        T.reads()",
        "        T.writes()",
        # TVM makes a buffer as large as it sees elements in use.
        f"        tiles[vn, {size - 1}] = T.uint16(0)",
        f'        T.evaluate(T.call_extern("int32", "{rows.name}", T.address_of(data[vn * {LANES}, 0]), '
        "T.address_of(tiles[vn, 0])))",
    ]


def panels_of(workload: Workload, buffers: Mapping[str, tirx.Buffer], values: Decisions) -> QuantisedPanels:
    """The function in LLVM's language that computes the panels of one iteration."""
    rows, _, groups, planes, steps, _, width = (axis.extent for axis in workload.stage(parts.DOTS).axes[:7])
    weight, factors = buffers["weight"], buffers[SCALES]
    asymmetry = ZEROS if "zeros" in buffers else MINIMA if "minima" in buffers else SYMMETRIC
    return QuantisedPanels(
        bits=4 if int(weight.shape[2]) < steps else 8,
        asymmetry=asymmetry,
        multiplied=int("multipliers" in buffers),
        single=int(str(factors.dtype) == "float32"),
        rows=rows,
        groups=groups,
        group=steps * width,
        ratio=groups // int(factors.shape[1]),
        columns=prod(int(extent) for extent in buffers["output"].shape) // rows,
        wide=values["vectors"],
        tall=values["rows"],
        together=values["depth"],
        halves=planes,
    )


def _first_panel(schedule: Any) -> int:
    """The first panel of the weight that the function multiplies by."""
    dots = schedule.get(schedule.get_sblock(parts.DOTS))
    beside = (parts.ROUNDED, parts.SUMS, parts.DOTS)
    weight = next(one for one in dots.reads if one.source.name not in beside)
    return int(tvm.sym.Analyzer().simplify(weight.region[0].min - dots.iter_vars[1].var))


def _address(name: str, buffers: Mapping[str, tirx.Buffer], panel: str) -> str:
    """Text of the address of what a panel has in a buffer."""
    rest = ", ".join(["0"] * (len(buffers[name].shape) - 1))
    return f"T.address_of({name}[{panel.replace('n ', 'vn ')}, {rest}])"


RULE = QuantisedTiles()
