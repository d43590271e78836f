"""Which program of a task is taken: by times and joules, alone and inside of a model, once and again."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from host.model import Candidate, Energy, Measurement
from host.records import MODEL, Record, RecordOrigin, RecordStore
from host.records.choice import (
    best_program,
    comparable_costs,
    has_watts,
    measured_costs,
    relative_watts,
    unconfirmed_program,
    watts_of,
)
from host.records.record import line_of, of_one_kind, record_of
from host.records.store import profile_data
from tests.unit.tuning.simulated import measured, profile

DATA = profile_data(profile())


def record(number: int, seconds: float, measured_in: str | None = MODEL) -> Record:
    candidate = Candidate("task", "tiled", (("rows", number),), "gensor", 1.0, 4)
    return Record(candidate, DATA, measured(seconds), origin=RecordOrigin(measured_in=measured_in))


def taken(*records: Record) -> tuple[int, float]:
    found = best_program(records)
    assert found is not None
    return int(str(found[0].candidate.value("rows"))), found[1]


def test_times_inside_of_a_model_come_before_times_alone() -> None:
    assert taken(record(1, 1.0, None), record(2, 3.0), record(3, 2.0)) == (3, 2.0)
    assert taken(record(1, 1.0, None), record(2, 3.0, None)) == (1, 1.0)


def test_a_program_that_was_measured_again_comes_before_one_that_was_lucky_once() -> None:
    first, lucky, better = record(0, 1.0), record(1, 0.8), record(2, 0.9)
    assert taken(first, lucky, better) == (1, 0.8)
    # It was luck: the mean counts, and the other one was not confirmed.
    assert taken(first, lucky, better, record(1, 1.2)) == (0, 1.0)
    assert taken(first, lucky, better, record(1, 1.2), record(2, 0.9)) == (2, 0.9)


def test_a_confirmed_program_has_the_mean_of_its_times() -> None:
    assert taken(record(0, 1.0), record(1, 0.7), record(1, 0.9)) == (1, 0.8)
    programs = comparable_costs([record(0, 1.0), record(1, 0.7), record(1, 0.9)])
    assert [(one.seconds, one.record.candidate.value("rows")) for one in programs] == [(1.0, 0), (0.8, 1)]


def test_where_a_kernel_was_measured_is_part_of_its_record() -> None:
    inside, alone = record(1, 1.0), record(1, 1.0, None)
    assert record_of(line_of(inside)).origin.measured_in == MODEL
    assert record_of(line_of(alone)).origin.measured_in is None
    assert "measured_in" not in line_of(alone)
    strange = RecordOrigin.read({"measured_in": "a dream"})
    assert strange.measured_in is None and strange.foreign == {"measured_in": "a dream"}


def unconfirmed(*records: Record) -> object:
    found = unconfirmed_program(records)
    return None if found is None else found.candidate.value("rows")


def test_what_is_faster_than_everything_confirmed_is_to_be_confirmed() -> None:
    assert unconfirmed() is None
    assert unconfirmed(record(0, 1.0), record(1, 1.1)) is None, "the first one is the fastest"
    assert unconfirmed(record(0, 1.0), record(1, 0.99)) is None, "less than 2% is noise"
    assert unconfirmed(record(0, 1.0), record(1, 0.8), record(2, 0.9)) == 1
    assert unconfirmed(record(0, 1.0), record(1, 0.8), record(1, 0.8), record(2, 0.9)) is None
    # A later program, measured once, can replace a confirmed one; until then that one is taken.
    later = record(0, 1.0), record(1, 0.8), record(1, 0.8), record(2, 0.7)
    assert unconfirmed(*later) == 2 and taken(*later) == (1, 0.8)
    assert taken(*later, record(2, 0.7)) == (2, 0.7)


def test_records_of_one_kind_are_those_inside_of_a_model_and_failures() -> None:
    alone, inside = record(1, 1.0, None), record(2, 1.0)
    failed = Record.failed(alone.candidate, DATA, "does not compile")
    assert of_one_kind([alone, failed]) == [alone, failed]
    assert of_one_kind([alone, failed, inside]) == [failed, inside]


JOULES, BOTH = 1.0, 0.5


def powered(seconds: float, watts: float | None, boundary: str = "board") -> Measurement:
    """Seconds of a call, with watts in its windows where they are known."""
    if watts is None:
        return measured(seconds)
    energy = Energy("measured", watts * seconds, None, "test", boundary=boundary, mean_w=watts)
    return replace(measured(seconds), energy=energy)


def powered_record(
    number: int,
    seconds: float,
    watts: float | None,
    measured_in: str | None = None,
    boundary: str = "board",
    tuning: str | None = None,
) -> Record:
    """A program of one task."""
    candidate = Candidate("task", "tiled", (("rows", number),), "gensor", 1.0, 4)
    origin = RecordOrigin(measured_in=measured_in, tuning=tuning)
    return Record(candidate, DATA, powered(seconds, watts, boundary), origin=origin)


def taken_by(exponent: float, *records: Record) -> tuple[object, float]:
    found = best_program(records, exponent)
    assert found is not None
    return found[0].candidate.value("rows"), found[1]


def test_each_objective_takes_its_own_program() -> None:
    fast, frugal, middle = (
        powered_record(1, 1.0, 10.0),
        powered_record(2, 4.0, 2.0),
        powered_record(3, 2.0, 3.0),
    )
    assert taken_by(0.0, fast, frugal, middle) == (1, 1.0)
    # 10, 8 and 6 J; 10, 32 and 12 J s.
    assert taken_by(JOULES, fast, frugal, middle) == (3, 2.0)
    assert taken_by(BOTH, fast, frugal, middle) == (1, 1.0)
    costs = measured_costs([fast, frugal], BOTH, reference_w=4.0)
    assert [one.cost**2 for one in costs] == pytest.approx([1.0 * 10.0 / 4.0, 16.0 * 2.0 / 4.0])


def test_a_program_of_unknown_power_has_the_most_that_is_known() -> None:
    fast, frugal = powered_record(1, 1.0, None), powered_record(2, 1.5, 2.0)
    assert taken_by(JOULES, fast, frugal) == (1, 1.0), "it takes less even with 2 W"
    assert taken_by(JOULES, fast, frugal, powered_record(3, 2.0, 6.0)) == (2, 1.5), "it may have 6 W"
    assert taken_by(JOULES, fast, powered_record(2, 1.5, None)) == (1, 1.0), (
        "without any watts the times decide"
    )


def test_watts_of_a_program_are_the_mean_of_its_records() -> None:
    again = powered_record(1, 1.0, 8.0), powered_record(1, 1.0, 4.0), powered_record(2, 1.0, 5.0)
    assert [one.cost for one in measured_costs(again, JOULES)] == pytest.approx([6.0, 5.0])
    assert [one.count for one in measured_costs(again, JOULES)] == [2, 1]


def test_watts_of_another_sensor_or_a_throttled_board_do_not_count() -> None:
    package, board = powered_record(1, 1.0, 2.0, boundary="package"), powered_record(2, 1.0, 9.0)
    slowed = powered_record(3, 1.0, 1.0)
    slowed = replace(slowed, measurement=replace(slowed.measurement, throttled=True))
    assert watts_of([package, board, slowed]) == [None, 9.0, None]
    assert watts_of([board, package]) == [None, 2.0]
    assert relative_watts([package, board, powered_record(4, 1.0, 4.5)]) == pytest.approx(
        [None, 4 / 3, 2 / 3]
    )
    assert relative_watts([powered_record(1, 1.0, None)]) == [None]
    assert has_watts(board)
    for none in (None, 0.0, -2.0, math.nan):
        joules = replace(board.measurement, energy=replace(board.measurement.energy, mean_w=none))
        assert not has_watts(replace(board, measurement=joules))


def test_each_task_has_the_watts_of_its_last_sensor_over_the_median_of_that() -> None:
    def of_task(task: str, watts: float, boundary: str) -> Record:
        one = powered_record(1, 1.0, watts, boundary=boundary)
        return replace(one, candidate=replace(one.candidate, workload_hash=task))

    known = [of_task("a", 2.0, "package"), of_task("b", 6.0, "package"), of_task("b", 30.0, "board")]
    known += [of_task("c", 10.0, "board"), of_task("a", 8.0, "package"), of_task("d", 20.0, "board")]
    # Of the package, 5 W; of the board, 20 W. The program of task b was measured with both.
    expected = [2 / 5, None, 30 / 20, 10 / 20, 8 / 5, 1.0]
    assert relative_watts(known) == pytest.approx(expected)


def test_what_is_confirmed_inside_of_a_model_is_the_cost() -> None:
    first, faster, frugal = (
        powered_record(0, 1.0, 4.0, MODEL),
        powered_record(1, 0.5, 12.0, MODEL),
        powered_record(2, 1.2, 2.0, MODEL),
    )
    found = unconfirmed_program([first, faster, frugal], JOULES)
    assert found is frugal and unconfirmed_program([first, faster, frugal]) is faster
    assert taken_by(JOULES, first, faster, frugal, powered_record(2, 1.2, 2.0, MODEL)) == (2, 1.2)


def test_a_store_gives_the_program_of_the_objective(tmp_path: Path) -> None:
    with RecordStore(tmp_path / "r.sqlite") as store:
        store.append([powered_record(1, 1.0, 10.0), powered_record(2, 2.0, 2.0)])
        fast, frugal = store.best("task", DATA), store.best("task", DATA, exponent=JOULES)
    assert fast is not None and frugal is not None
    assert (fast.candidate.value("rows"), frugal.candidate.value("rows")) == (1, 2)
