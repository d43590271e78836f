"""Scatters: rows of updates in vectors, and threads that have parts of the result of their own."""

from __future__ import annotations

from collections.abc import Mapping

from host.lowering.types import numeric_type
from host.schedules.api import CPU, PARALLEL, DecisionKind, Decisions, Level, Rule, Sampler, WordClass
from host.schedules.cpu.common import lanes_of
from host.schedules.cpu.scatter.cost import CONSTANTS, scatter_seconds
from host.schedules.cpu.scatter.program import part_of, put_scatter
from host.schedules.scatter import Scatter, is_scatter, scatter_of
from host.schedules.workload import Workload
from targets import HardwareModel

# Parts of the places, and steps that all columns of a row make at most: each of them reads all places.
_SPLITS = (1, 2, 3, 4, 6, 8, 12, 16)
_MOST_TILES = 64


class ScatterRule(Rule):
    """One step for each part of the result, with all of its updates."""

    name = "scatter"
    processor = CPU
    # 2: whole rows are copied by the library.
    version = 2
    priority = 5
    traced = False
    # A measured call has zeros for places.
    measurable = False
    # Parts are nothing without threads, and threads may be nothing without parts.
    coupled = True
    constants = CONSTANTS
    decisions = (
        DecisionKind("columns", Level.BLOCK, WordClass.TILE, starts_wide=True),
        DecisionKind("splits", Level.BLOCK, WordClass.PARALLEL, of_threads=True),
    )

    def matches(self, workload: Workload, hardware: HardwareModel) -> bool:
        """The function of a scatter."""
        return is_scatter(workload)

    def choices(self, workload: Workload, hardware: HardwareModel) -> Mapping[str, tuple[int, ...]]:
        """Whole vectors of columns, or a whole row; parts that have places, of about the same number."""
        scatter = scatter_of(workload)
        return {"columns": _columns(scatter, hardware), "splits": _splits(scatter)}

    def legal(self, workload: Workload, hardware: HardwareModel, values: Decisions) -> bool:
        """No more parts than threads."""
        return values.get("splits", 1) <= values.get(PARALLEL.name, 1)

    def apply(self, sampler: Sampler, workload: Workload, hardware: HardwareModel, threads: int) -> None:
        """Puts the program in the place of the function's body."""
        for decision in self.decisions:
            if decision.name in sampler.values:
                sampler.sample(decision.name)
        splits = sampler.values.get("splits", 1)
        put_scatter(
            sampler.schedule, scatter_of(workload), sampler.value("columns"), splits, shared=threads > 1
        )

    def estimate_s(
        self, workload: Workload, hardware: HardwareModel, threads: int, values: Decisions
    ) -> float:
        """Estimated seconds of one call, see `cost`."""
        splits = values.get("splits", 1)
        return scatter_seconds(scatter_of(workload), hardware, threads, values["columns"], splits)


def _columns(scatter: Scatter, hardware: HardwareModel) -> tuple[int, ...]:
    found, columns = [], lanes_of(hardware, numeric_type(scatter.dtype).bytes)
    while columns < scatter.inner:
        if -(-scatter.inner // columns) <= _MOST_TILES:
            found.append(columns)
        columns *= 2
    return (*found, scatter.inner)


def _splits(scatter: Scatter) -> tuple[int, ...]:
    parts = {n: part_of(scatter.size, n) for n in _SPLITS}
    return tuple(n for n, part in parts.items() if (n - 1) * part < scatter.size)


RULE = ScatterRule()
