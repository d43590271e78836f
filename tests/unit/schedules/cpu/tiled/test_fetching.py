"""What fetching weights ahead and counting take by the estimate, and how many lines a program fetches."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tvm import s_tir, tirx

from host.gensor import Gensor
from host.model import Candidate, DeviceProfile
from host.schedules import DesignSpace, scheduled_function, space_for
from host.schedules.cpu.tiled.cost import lines_fetched
from host.schedules.cpu.tiled.roles import roles_of
from tests.unit.schedules import functions as fn
from tests.unit.schedules.cpu.tiles import tile_cases

_ROWS, _COLUMNS, _DEPTH = 56, 256, 512
_ONE = {"rows": 7, "rows2": 1, "vectors": 2, "panel": 1, "block": 1, "block2": 1, "unroll": 1, "window": 0}
_ONE |= {"pad": 0, "fetch": 1}


def _space(fetch_cycles: float | None = None) -> DesignSpace:
    hardware = tile_cases.board().hardware
    if fetch_cycles is not None:
        hardware = replace(hardware, fetch_cycles=fetch_cycles)
    return space_for(fn.task(fn.dense(_ROWS, _COLUMNS, _DEPTH)), hardware)


def _fetches(function: tirx.PrimFunc) -> int:
    """Prefetches in one call of a function, all its conditions met."""
    total = 0

    def visit(statement: tirx.Stmt, times: int) -> None:
        nonlocal total
        if isinstance(statement, tirx.For):
            visit(statement.body, times * int(statement.extent))
        elif isinstance(statement, tirx.SeqStmt):
            for one in statement.seq:
                visit(one, times)
        elif isinstance(statement, tirx.IfThenElse):
            visit(statement.then_case, times)
        elif isinstance(statement, s_tir.SBlockRealize):
            visit(statement.block.body, times)
        elif isinstance(statement, tirx.Evaluate):
            total += times * ("prefetch" in str(statement))

    visit(function.body, 1)
    return total


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"block": 2},
        {"block": 8},
        {"block": 4, "panel": 2},
        {"vectors": 1, "rows": 14},
        {"vectors": 4, "rows": 4},
    ],
)
def test_the_estimate_counts_the_lines_that_a_program_fetches(changed: dict[str, int]) -> None:
    space = _space()
    values = _ONE | changed
    assert space.legal(values)
    anchor = space.workload.anchor_stage
    roles = roles_of(anchor, space.hardware)
    assert roles is not None
    tiles = -(-roles.row_total // values["rows"]) * (roles.groups // values["vectors"])
    counted = lines_fetched(roles, values, values["vectors"]) * _DEPTH * tiles
    made = _fetches(scheduled_function(space.apply(space.candidate(values, "test"))))
    assert made == pytest.approx(counted, rel=0.02)


def test_tiles_that_share_what_they_fetch_are_faster_where_fetching_takes_turns() -> None:
    alone, shared = _ONE, _ONE | {"block": 8}
    taking, hidden = _space(), _space(0.0)
    assert taking.estimate_s(alone) > 1.05 * taking.estimate_s(shared)
    assert hidden.estimate_s(alone) <= 1.01 * hidden.estimate_s(shared)
    # What fetches nothing takes no turns.
    nothing = alone | {"fetch": 0}
    assert taking.estimate_s(nothing) == hidden.estimate_s(nothing)


def test_gensor_lets_tiles_share_what_they_fetch() -> None:
    board = tile_cases.board()
    profile = DeviceProfile("local", board, board.hardware, 1)

    def lines(fetch_cycles: float) -> float:
        space = _space(fetch_cycles)
        [first] = Gensor().propose(space, profile, (), 1, seed=0)
        values = _values(first)
        roles = roles_of(space.workload.anchor_stage, space.hardware)
        assert values["fetch"] and roles is not None
        return lines_fetched(roles, values, values["vectors"])

    assert lines(board.hardware.fetch_cycles) < 0.5


def test_steps_that_are_written_out_are_faster_where_counting_takes_turns() -> None:
    taking, hidden = _space(0.0), _space(0.0)
    hidden = replace(hidden, hardware=replace(hidden.hardware, loop_cycles=0.0))
    one, four = ({**_ONE, "fetch": 0, "unroll": unroll} for unroll in (1, 4))
    assert taking.estimate_s(four) < 0.995 * taking.estimate_s(one)
    assert hidden.estimate_s(four) >= hidden.estimate_s(one)


def _values(candidate: Candidate) -> dict[str, int]:
    return {name: int(value) for name, value in candidate.decisions if not isinstance(value, tuple)}
