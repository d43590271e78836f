from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from host.compile.static_model import Plan
from host.compile.tuning.kernel_tuning import recall, records_of, tuning_tasks, untuned
from host.deploy import CompileOptions
from host.gensor import Gensor
from host.model import Task
from host.records import Record, RecordStore
from host.records.store import profile_data
from host.schedules import space_for
from tests.unit.compare.samples import measurement
from tests.unit.lowering.attention.test_cached_attention import Case, lowered
from tests.unit.tuning.simulated import dense, profile

TASK = Task("dense", dense, 2, "hash-dense", 2.0 * 16 * 64 * 64)


def planned(tasks: tuple[Task, ...] = (TASK,)) -> Plan:
    spaces = {task.workload_hash: space_for(task, profile().hardware) for task in tasks}
    chosen = {key: Gensor().propose(space, profile(), (), 1, 0)[0] for key, space in spaces.items()}
    return Plan(spaces, chosen, {})


def test_records_are_recalled_for_the_same_profile_only(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    plan = planned()
    assert recall(plan, profile(), path) is plan
    assert not path.exists()
    space = plan.spaces["hash-dense"]
    other = next(
        candidate
        for candidate in Gensor().propose(space, profile(), (), 8, 1)
        if candidate.decisions != plan.chosen["hash-dense"].decisions
    )
    with RecordStore(path) as store:
        store.append([Record(other, profile_data(profile()), measurement(1.0))])
    recalled = recall(plan, profile(), path)
    assert recalled.chosen["hash-dense"].decisions == other.decisions
    assert recalled.from_database == {"hash-dense"}
    elsewhere = recall(plan, replace(profile(), threads=2), path)
    assert elsewhere.chosen == plan.chosen
    assert elsewhere.from_database == frozenset()


def test_a_record_that_is_no_longer_legal_leaves_the_constructed_program(tmp_path: Path) -> None:
    path, plan = tmp_path / "r.sqlite", planned()
    constructed = plan.chosen["hash-dense"]
    (name, _), *others = constructed.decisions
    illegal = replace(constructed, decisions=((name, 12345), *others))
    with RecordStore(path) as store:
        store.append([Record(illegal, profile_data(profile()), measurement(1.0))])
    recalled = recall(plan, profile(), path)
    assert recalled.chosen == plan.chosen and recalled.from_database == frozenset()


def test_tasks_whose_calls_need_a_text_are_not_measured() -> None:
    """Integers of a measured call are zeros; the position of attention over a cache is one."""
    [attention] = lowered(Case(1, 8, 1, 64, 4096)).tasks
    plan = planned((TASK, attention))
    assert [one.key for one in tuning_tasks((TASK, attention), plan, plan, None)] == [TASK.workload_hash]
    assert list(untuned((TASK, attention), plan, None)) == [attention.name]


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({}, "records.sqlite"),
        ({"records": "a/b.sqlite"}, "a/b.sqlite"),
        ({"records": "sqlite://"}, "sqlite://"),
    ],
)
def test_records_are_where_they_were_asked_for(options: dict[str, Any], place: str) -> None:
    found = records_of(CompileOptions(Path("net.onnx"), **options))
    assert str(found).endswith(place)
    assert isinstance(found, str) is ("://" in place)
