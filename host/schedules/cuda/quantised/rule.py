"""Products of few rows with quantised weights on a GPU: the weight is read once, packed until registers.

`rows` rows of the weight are a warp's, which loads the activations once for them; `warps` are a block.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from host.lowering.quantised.row_major import FORM, PRODUCT, VALUES, RowForm
from host.schedules.api import GPU, DecisionKind, Decisions, Level, Rule, Sampler, WordClass
from host.schedules.cuda.multiprocessor import gpu_of, register_limit
from host.schedules.cuda.quantised.cost import row_product_seconds
from host.schedules.cuda.quantised.program import RowProduct, RowTiles, put_into
from host.schedules.cuda.scripts import WARP
from host.schedules.workload import Workload
from targets import HardwareModel

_ROWS, _WARPS = (1, 2, 4, 8), (1, 2, 4, 8, 16)
# Rows of activations, more of which are for tensor cores.
_MOST_COUNT = 8


class CudaQuantised(Rule):
    """A warp multiplies a few rows of the weight by all rows of activations."""

    name = "cuda_quantised"
    processor = GPU
    version = 1
    priority = 6
    traced = False
    decisions = (
        DecisionKind("rows", Level.REGISTER, WordClass.TILE),
        DecisionKind("warps", Level.BLOCK, WordClass.PARALLEL),
    )

    def matches(self, workload: Workload, hardware: HardwareModel) -> bool:
        """The function of such a product with few rows, whose weight can be loaded 16 bytes at a time."""
        if hardware.gpu is None or [stage.name for stage in workload.stages] != [VALUES, PRODUCT]:
            return False
        product = product_of(workload)
        # Every element of a chunk has the same scale.
        _, *others = workload.stage(VALUES).reads
        group = product.depth // max(access.shape[1] for access in others)
        return product.count <= _MOST_COUNT and group % product.chunk == product.depth % product.chunk == 0

    def choices(self, workload: Workload, hardware: HardwareModel) -> Mapping[str, tuple[int, ...]]:
        """Rows of a warp, and warps of a block."""
        columns = product_of(workload).columns
        return {"rows": tuple(n for n in _ROWS if n < 2 * columns), "warps": _WARPS}

    def legal(self, workload: Workload, hardware: HardwareModel, values: Decisions) -> bool:
        """Registers of a block are within the GPU's; blocks have no more warps than there are rows for."""
        product, tiles = product_of(workload), tiles_of(values)
        if tiles.warps > 1 and tiles.warps * tiles.rows >= 2 * product.columns:
            return False
        limit = register_limit(gpu_of(hardware), tiles.warps * WARP)
        return tiles.registers(product.count, product.chunk) <= limit

    def apply(self, sampler: Sampler, workload: Workload, hardware: HardwareModel, threads: int) -> None:
        """Puts the program in the place of the function's body."""
        schedule = sampler.schedule
        for kind in self.decisions:
            sampler.sample(kind.name)
        values, product = (schedule.get(schedule.get_sblock(name)) for name in (VALUES, PRODUCT))
        form = RowForm(**json.loads(values.annotations[FORM]))
        found = {region.source.name: region.source for region in (*values.reads, *product.reads)}
        buffers = {name: found[name] for name in ("data", "weight", "factors", *form.further)}
        buffers["output"] = product.writes[0].source
        put_into(schedule, product_of(workload), form, tiles_of(sampler.values), buffers)

    def estimate_s(
        self, workload: Workload, hardware: HardwareModel, threads: int, values: Decisions
    ) -> float:
        """Estimated seconds of one call, see `cost`."""
        return row_product_seconds(product_of(workload), tiles_of(values), gpu_of(hardware))


def product_of(workload: Workload) -> RowProduct:
    """The extents of the function."""
    count, columns, depth = (axis.extent for axis in workload.stage(PRODUCT).axes)
    weight = workload.stage(VALUES).reads[0]
    return RowProduct(count, columns, depth, 8 * weight.shape[1] // depth)


def tiles_of(values: Decisions) -> RowTiles:
    """The tiles of a program."""
    return RowTiles(values["rows"], values["warps"])


RULE = CudaQuantised()
