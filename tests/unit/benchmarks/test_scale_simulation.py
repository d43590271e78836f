"""The simulation of many boards has the limits of its costs; a filled database is one that is believed."""

from __future__ import annotations

import pytest

from benchmarks.scale import records
from benchmarks.scale.simulation import (
    MEASUREMENT_S,
    Costs,
    Head,
    boards_of_a_head,
    costs_of,
    figures_of,
    fleet,
)
from host.records import RecordStore
from host.records.database import Database
from tests.unit.records.samples import profile

COSTS = Costs(head_s=3e-3, database_s=1e-3, wire_bytes=20_000.0, record_bytes=2_500.0)


def test_a_head_with_few_boards_keeps_all_of_them_busy() -> None:
    run = Head(100, 1e-3)
    assert run.rate() == pytest.approx(100 / (MEASUREMENT_S + 1e-3), rel=0.02)
    assert 0.0 <= run.idle_share() < 0.01
    assert sum(run.measured) == 12 * 100 and set(run.measured) <= {11, 12, 13}


def test_a_head_with_too_many_boards_is_the_limit() -> None:
    run = Head(4_000, 1e-2)
    assert run.rate() == pytest.approx(100.0, rel=0.02)
    assert run.idle_share() > 0.9


def test_heads_are_added_with_the_boards_and_the_database_gets_what_all_of_them_measure() -> None:
    most = boards_of_a_head(COSTS)
    assert most == 700
    small, large = fleet(most, COSTS), fleet(10 * most, COSTS)
    assert (small["heads"], large["heads"]) == (1, 10)
    assert large["jobs_per_s"] == pytest.approx(10 * small["jobs_per_s"])
    assert large["database_load"] == pytest.approx(large["jobs_per_s"] * COSTS.database_s)
    assert large["leases_per_s"] == pytest.approx(10 / 15.0)


def test_boards_wait_for_a_loaded_head_and_not_for_its_start() -> None:
    """The head is busy for 70% of the time, so a board waits for others, and then for the head itself.

    The first wait is that of Pollaczek and Khinchine; at the start it is 125 times as long.
    """
    run = Head(262, 8e-3)
    waits_s = 8e-3 * (1.0 + 0.7 / (2 * 0.3))
    assert run.idle_share() == pytest.approx(waits_s / (MEASUREMENT_S + waits_s), abs=0.004)


def test_costs_are_those_of_the_results() -> None:
    many = {"command_cpu_ms": 3.0, "database_cpu_ms": 1.0, "wire_bytes": 20_000.0}
    assert costs_of(many, {"bytes_per_record": {"database": 2_500.0}}) == COSTS
    assert figures_of(COSTS)["billion_bytes"] == 2.5e12


def test_a_filled_database_has_records_that_are_believed_and_its_indexes(shared: str) -> None:
    with RecordStore(shared):
        pass
    database = Database(shared)
    with database.engine.begin() as connection:
        before = connection.exec_driver_sql(_INDEXES).scalars().all()
    records.fill(shared, 3 * records.DEVICES)
    with database.engine.begin() as connection:
        assert connection.exec_driver_sql(_INDEXES).scalars().all() == before
    database.engine.dispose()
    with RecordStore(shared) as store:
        asked: list[str] = []
        # Where a row says something else than its record, every record of the task is read instead.
        store.best = lambda task, *_: asked.append(task)  # type: ignore[method-assign]
        tasks = {records.task_name(number): ("matmul", 4) for number in range(3)}
        assert set(store.best_of(tasks, profile(threads=1))) == set(tasks) and not asked


_INDEXES = "SELECT indexdef FROM pg_indexes WHERE tablename = 'records' ORDER BY indexdef"
