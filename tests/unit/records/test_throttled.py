"""What a throttled device measured is kept and marked, and nothing compares with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from host.model import Energy, comparable
from host.records import Record, RecordStore
from host.records.choice import best_program
from host.records.record import line_of, record_of
from tests.unit.records.samples import profile, record, same


def throttled(milliseconds: float, tile: int = 4, invalid: str = "") -> Record:
    good = record(milliseconds, tile)
    measurement = replace(
        good.measurement, throttled=True, throttle_reasons=("frequency capped",), invalid=invalid
    )
    return replace(good, measurement=measurement)


def test_the_fastest_program_of_a_throttled_device_is_not_the_best(place: str | Path) -> None:
    with RecordStore(place) as store:
        kept = record(2.0)
        assert store.append([kept, throttled(1.0, tile=8), throttled(0.5, tile=2, invalid="weak")]) == 3
        best = store.best("task", profile())
        assert best is not None and same(best, kept)
        assert [one.median_s for one in store.history("task", profile())] == [2e-3]
        # Neither did it fail, so that it may be measured again.
        assert store.history("task", profile(), failed=True) == ()
        assert [one.median_s for one in store.select(profile())] == [2e-3]
        summary = store.summaries()[0]
        assert (summary.measured, summary.failed, summary.throttled) == (1, 0, 2)
        # All of them are kept, with the mark.
        assert [one.measurement.trusted for one in store] == [True, False, False]


def test_the_mark_and_its_reason_come_back_from_a_line() -> None:
    again = record_of(line_of(throttled(1.0, invalid="under-voltage")))
    assert again.measurement.throttled and again.measurement.invalid == "under-voltage"
    assert again.measurement.throttle_reasons == ("frequency capped",)
    assert again.median_s is None


def test_it_is_no_rival_among_records() -> None:
    assert best_program([throttled(0.1)]) is None


MEASURED = Energy("measured", 0.2, None, "ina3221 (VDD_IN)", "module", ("VDD_IN",))


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (MEASURED, None),
        (replace(MEASURED, gross_j=5.0, source="the same rail by another driver"), None),
        (replace(MEASURED, boundary="wall"), "module boundary, the other of the wall boundary"),
        (replace(MEASURED, kind="estimated"), "one energy is measured, the other estimated"),
        (replace(MEASURED, rails=("POM_5V_IN",)), "other rails (VDD_IN and POM_5V_IN)"),
        (Energy("unavailable", None, None, "no sensor on this board"), "no sensor on this board"),
    ],
)
def test_energies_of_different_things_are_not_compared(other: Energy, reason: str | None) -> None:
    found = comparable(MEASURED, other)
    assert found is None if reason is None else found is not None and reason in found
    assert (comparable(other, MEASURED) is None) == (reason is None)
