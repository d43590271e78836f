"""The best programs of a whole model: chosen by the database, and the same as those chosen one by one."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sql

from host.records import Record, RecordOrigin, RecordStore
from host.records.database import RECORDS
from host.records.record import line_of
from tests.unit.records.samples import failure, profile, record, same

INSIDE = RecordOrigin.read({"measured_in": "model"})
RULE = ("matmul", 4)


def inside(milliseconds: float, tile: int, task: str = "task") -> Record:
    return replace(record(milliseconds, tile, task=task), origin=INSIDE)


def of_rule(one: Record, rule: str, version: int) -> Record:
    return replace(one, candidate=replace(one.candidate, rule=rule, space_version=version))


def some_records(draw: random.Random) -> list[Record]:
    """Of one task: few programs, measured often, alone and inside of a model, and such as do not count."""
    # No two that are 2% apart but for a last digit: the databases add in an order of their own.
    times = [1.0, 1.015, 1.03, 1.2, 2.0, 3.5]
    made: list[Record] = []
    for _ in range(draw.randrange(1, 9)):
        one = record(draw.choice(times), tile=draw.choice([2, 4, 8, 16]))
        if draw.random() < 0.4:
            one = replace(one, origin=INSIDE)
        if draw.random() < 0.2:
            one = of_rule(one, "another", 4)
        if draw.random() < 0.2:
            one = of_rule(one, "matmul", 3)
        if draw.random() < 0.1:
            one = replace(one, measurement=replace(one.measurement, throttled=True))
        made.append(failure(tile=32) if draw.random() < 0.1 else one)
    return made


def test_they_are_those_that_are_chosen_one_by_one(place: str | Path) -> None:
    draw = random.Random(5)
    tasks = [f"task{number}" for number in range(120)]
    with RecordStore(place) as store:
        for task in tasks:
            store.append(
                [
                    replace(one, candidate=replace(one.candidate, workload_hash=task))
                    for one in some_records(draw)
                ]
            )
        found = store.best_of(dict.fromkeys(tasks, RULE), profile())
        singly = {task: store.best(task, profile(), dict([RULE])) for task in tasks}
    assert found.keys() == {task for task, best in singly.items() if best is not None}
    assert 60 < len(found) < len(tasks)
    for task, best in found.items():
        assert same(best, singly[task]), task


@pytest.mark.parametrize("other", [("matmul", 3), ("another", 4)])
def test_each_task_has_a_rule_of_its_own(place: str | Path, other: tuple[str, int]) -> None:
    with RecordStore(place) as store:
        store.append([record(2.0), of_rule(record(1.0), *other)])
        store.append([record(3.0, task="elsewhere"), of_rule(record(4.0, task="elsewhere"), *other)])
        found = store.best_of({"task": RULE, "elsewhere": other}, profile())
        assert {task: one.median_s for task, one in found.items()} == {"task": 2e-3, "elsewhere": 4e-3}
        assert store.best_of({"task": RULE}, profile(threads=2)) == {}
        assert store.best_of({}, profile()) == {}


def _statements(store: RecordStore) -> list[str]:
    seen: list[str] = []
    sql.event.listen(
        store._database.engine,
        "before_cursor_execute",
        lambda connection, cursor, statement, *rest: seen.append(statement),
    )
    return seen


def test_a_whole_model_takes_two_questions(place: str | Path) -> None:
    names = [f"task{number}" for number in range(60)]
    with RecordStore(place) as store:
        store.append(
            [record(ms, tile=int(4 * ms), task=name) for name, ms in itertools.product(names, (1, 2))]
        )
        seen = _statements(store)
        assert len(store.best_of(dict.fromkeys(names, RULE), profile())) == 60
    assert len([one for one in seen if one.startswith(("SELECT", "WITH"))]) == 2


def test_columns_that_say_more_than_their_record_do_not_choose(place: str | Path) -> None:
    """Whoever writes rows can write any column; what is taken is what the records themselves say."""
    with RecordStore(place) as store:
        store.append([inside(3.0, 4), inside(2.0, 8), record(1.0, tile=16)])
        other = record(0.5, tile=32, task="of another task")
        store.append([other])
        for lie in (
            {"median_s": 1e-6, "measured_in": "model"},
            {"workload_hash": "task", "median_s": 1e-6, "measured_in": "model"},
            {"content": line_of(other), "median_s": 1e-6, "measured_in": "model"},
        ):
            with store._database.writing() as connection:
                rows = connection.execute(sql.select(RECORDS).order_by(RECORDS.c.id)).all()
                connection.execute(
                    RECORDS.insert(), {**rows[2]._mapping, "id": 1000, "record_key": "liar", **lie}
                )
            best = store.best_of({"task": RULE}, profile())["task"]
            assert best.median_s == 2e-3
            with store._database.writing() as connection:
                connection.execute(sql.delete(RECORDS).where(RECORDS.c.record_key == "liar"))
