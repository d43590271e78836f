"""Products of gate and up with quantised weights, in tiles of bfloat16 numbers (AMX), and their activation.

Weights and activations are those of `quantised_tiles`, which says how they are rounded. A panel of gate and
the panel of up with the same outputs are multiplied together, and vector units compute activation(gate) * up
of sums that have not left the first cache level: neither gate nor up is in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from tvm import tirx

from host.lowering.quantised import product as parts
from host.schedules.api import Decisions
from host.schedules.cpu.gated_tiles.cost import ACTIVATION_CYCLES, CONSTANTS
from host.schedules.cpu.quantised_tiles.cost import CONSTANTS as TILES_CONSTANTS
from host.schedules.cpu.quantised_tiles.cost import quantised_tiles_seconds
from host.schedules.cpu.quantised_tiles.rule import QuantisedTiles, in_tiles, panels_of
from host.schedules.workload import Workload
from host.tensor_ir.tiles.gated import ACTIVATIONS, GatedPanels
from host.tensor_ir.tiles.lines import DEPTH, LANES
from targets import HardwareModel


class GatedTiles(QuantisedTiles):
    """Tiles of rows and panels of gate, each multiplied together with its panel of up."""

    name = "gated_tiles"
    version = 1
    constants = (*TILES_CONSTANTS, *CONSTANTS)
    sharing = 2

    def matches(self, workload: Workload, hardware: HardwareModel) -> bool:
        """The function of such a product, with rows and groups of whole tiles; the stack holds its sums."""
        return _activation(workload) is not None and in_tiles(workload, hardware)

    def legal(self, workload: Workload, hardware: HardwareModel, values: Decisions) -> bool:
        """Both blocks fit the stack, and a call begins with a whole tile of the result."""
        whole = not _makes_tiles(workload) or values["vectors"] * LANES % DEPTH == 0
        return whole and super().legal(workload, hardware, values)

    def estimate_s(
        self, workload: Workload, hardware: HardwareModel, threads: int, values: Decisions
    ) -> float:
        """Estimated seconds of one call, see `host.schedules.cpu.quantised_tiles.cost`."""
        cycles = ACTIVATION_CYCLES.on(hardware)
        return quantised_tiles_seconds(workload, hardware, threads, values, self.sharing, cycles)

    def panels(
        self, workload: Workload, buffers: Mapping[str, tirx.Buffer], values: Decisions
    ) -> GatedPanels:
        """The function in LLVM's language that computes the panels of one iteration."""
        activation = _activation(workload)
        assert activation is not None, "the rule matched before"
        in_tiles = int(str(buffers["output"].dtype) == parts.TILED)
        one = asdict(panels_of(workload, buffers, values))
        return GatedPanels(**one, activation=activation, in_tiles=in_tiles)


def _makes_tiles(workload: Workload) -> bool:
    """Whether the result is in tiles, as the product behind it reads it."""
    return workload.stages[-1].write.type.name == parts.TILED


def _activation(workload: Workload) -> int | None:
    """The number of the activation that the function computes at its end, if there is one."""
    names = {stage.name for stage in workload.stages}
    for number, activation in enumerate(ACTIVATIONS):
        if parts.GATED + activation in names:
            return number
    return None


RULE = GatedTiles()
