"""Which program of a task is taken, by times alone and inside of a model, measured once and again."""

from __future__ import annotations

from host.model import Candidate
from host.records import MODEL, Record, RecordOrigin
from host.records.record import (
    comparable_times,
    fastest_program,
    line_of,
    of_one_kind,
    record_of,
    unconfirmed_program,
)
from host.records.store import profile_data
from tests.unit.tuning.simulated import measured, profile

DATA = profile_data(profile())


def record(number: int, seconds: float, measured_in: str | None = MODEL) -> Record:
    candidate = Candidate("task", "tiled", (("rows", number),), "gensor", 1.0, 4)
    return Record(candidate, DATA, measured(seconds), origin=RecordOrigin(measured_in=measured_in))


def taken(*records: Record) -> tuple[int, float]:
    found = fastest_program(records)
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
    times = comparable_times([record(0, 1.0), record(1, 0.7), record(1, 0.9)])
    assert [(seconds, one.candidate.value("rows")) for seconds, one in times] == [(1.0, 0), (0.8, 1)]


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
