"""Cycles of a whole program by a model of its pipeline, to which all data is in the first cache."""

from __future__ import annotations

from collections.abc import Sequence

from research.modelled_boards.cycles import cycles_of
from research.modelled_boards.listing import Run
from targets import Board

# Share of the executed instructions whose blocks are modelled one by one; the rest costs as much as these do
# on the average.
_COVERED = 0.995


def cycles_per_run(runs: Sequence[Run], board: Board) -> list[float]:
    """Cycles of one execution of each block, when it is executed again and again; see `cycles_of`."""
    return cycles_of([run.instructions for run in runs], board.architecture, str(board.tvm_target["mcpu"]))


def estimated_cycles(runs: Sequence[Run], board: Board) -> float:
    """Cycles of all blocks: executions times cycles, the hottest one by one."""
    ordered = sorted(runs, key=lambda run: run.executed, reverse=True)
    total = sum(run.executed for run in ordered)
    hot: list[Run] = []
    covered = 0
    for run in ordered:
        if covered >= _COVERED * total:
            break
        hot.append(run)
        covered += run.executed
    modelled = sum(run.runs * cycles for run, cycles in zip(hot, cycles_per_run(hot, board), strict=True))
    return modelled * total / covered
