from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from host.model import Candidate
from host.records import Record, RecordOrigin, RecordStore
from host.records.store import profile_data
from host.schedules.families import rule_versions
from host.tuning.history import TuningHistory, model_seconds, tuning_key
from host.tuning.result import summary
from tests.unit.tuning.simulated import measured, profile, tuning_tasks

TASKS = tuning_tasks(2)
DATA = profile_data(profile())


def program(task: int, number: int, rule: str = "tiled", proposer: str = "gensor") -> Candidate:
    # Records of another version of the rule are of other programs, and are left out.
    return Candidate(f"hash-t{task}", rule, (("rows", number),), proposer, 1.0, rule_versions()[rule])


def record(candidate: Candidate, seconds: float, **origin: Any) -> Record:
    return Record(candidate, DATA, measured(seconds), origin=RecordOrigin(**origin))


def test_less_than_two_percent_does_not_change_the_program(tmp_path: Path) -> None:
    with RecordStore(tmp_path / "r.sqlite") as store:
        store.append(
            [record(program(0, number), seconds) for number, seconds in enumerate((3.0, 1.01, 1.0, 0.995))]
        )
        history = TuningHistory.read(store, profile(), "net/0")
    best = history.best(TASKS[0])
    assert best is not None
    assert (best[0].candidate, best[1]) == (program(0, 1), 1.01)
    assert history.best(TASKS[1]) is None


def test_a_throttled_measurement_costs_budget_and_teaches_nothing(tmp_path: Path) -> None:
    slowed = record(program(0, 2), 0.5, tuning="net/0")
    slowed = replace(slowed, measurement=replace(slowed.measurement, throttled=True))
    with RecordStore(tmp_path / "r.sqlite") as store:
        store.append([record(program(0, 1), 1.0, tuning="net/0"), slowed])
        history = TuningHistory.read(store, profile(), "net/0")
    assert len(history.own) == 2
    assert [one.candidate for one in history.records] == [program(0, 1)]
    assert [trial.seconds for trial in history.trials] == [1.0]
    assert history.failed_programs(TASKS[0]) == []
    best = history.best(TASKS[0])
    assert best is not None and best[1] == 1.0


def test_what_counts_for_whom(tmp_path: Path) -> None:
    own = {"tuning": "net/0", "batch": 3, "elapsed_s": 7.5}
    with RecordStore(tmp_path / "r.sqlite") as store:
        store.append([record(program(0, 1), 1.0, tuning="other/0", batch=9, elapsed_s=99.0)])
        store.append([record(program(0, 2), 2.0, **own), record(program(0, 3, "winograd"), 0.1, **own)])
        store.append([Record.failed(program(0, 4), DATA, "does not compile", RecordOrigin(**own))])
        elsewhere = {**DATA, "threads": 2}
        store.append([Record(program(0, 5), elsewhere, measured(0.1), origin=RecordOrigin(**own))])
        history = TuningHistory.read(store, profile(), "net/0")
    assert len(history.records) == 4, "records of another profile are another board's"
    assert [one.candidate for one in history.own] == [program(0, 2), program(0, 3, "winograd"), program(0, 4)]
    assert (history.next_batch, history.elapsed_s) == (4, 7.5)
    assert [candidate for candidate, _ in history.measured_programs(TASKS[0])] == [
        program(0, 1),
        program(0, 2),
    ]
    assert history.failed_programs(TASKS[0]) == [program(0, 4)]
    state = history.task_state(TASKS[0], pending=2)
    assert (state.best_s, len(state.times_s), state.pending) == (1.0, 3, 2)
    result = summary(TASKS, history, measured_now=1)
    assert result.tasks[0].earlier and result.tasks[0].failed == 1
    # The task that nobody measured counts as estimated.
    assert result.model_s == TASKS[0].weight * 1.0 + TASKS[1].weight * TASKS[1].estimate_s


def test_an_origin_of_another_kind_is_of_no_batch(tmp_path: Path) -> None:
    strange = RecordOrigin.read({"tuning": "net/0", "batch": "first", "elapsed_s": [1]})
    with RecordStore(tmp_path / "r.sqlite") as store:
        store.append([Record(program(0, 1), DATA, measured(1.0), origin=strange)])
        history = TuningHistory.read(store, profile(), "net/0")
    assert (history.next_batch, history.elapsed_s) == (0, 0.0)
    assert [trial.group for trial in history.trials] == [""]
    assert len(history.own) == 1, "it counts against the budget"


def test_a_tuning_is_of_a_model_and_a_seed() -> None:
    names = {tuning_key("a" * 64, 0), tuning_key("a" * 64, 1), tuning_key("b" * 64, 0)}
    assert len(names) == 3
    assert tuning_key("a" * 64, 0) in names


def test_the_models_time_is_the_sum_of_its_calls() -> None:
    assert model_seconds(TASKS, {"hash-t0": 2.0, "hash-t1": 3.0}) == 1 * 2.0 + 2 * 3.0
