from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm.script import tirx as T

from host.deployment import Silence
from host.deployment.clock import StageClock
from host.deployment.compile import Plan
from host.deployment.tune import Tuner, recall, shares
from host.errors import SessionLost
from host.gensor import Gensor
from host.model import Candidate, DeviceProfile, LoweredModel, Measurement, Signature, Task
from host.records import Record, RecordStore
from host.records.store import profile_data
from host.space import space_for
from targets import board_for, declared
from tests.unit.deployment.samples import measurement


@T.prim_func(s_tir=True)
def dense(
    x: T.Buffer((16, 64), "float32"), w: T.Buffer((64, 64), "float32"), y: T.Buffer((16, 64), "float32")
) -> None:
    T.func_attr({"tirx.noalias": True})
    for i, j, k in T.grid(16, 64, 64):
        with T.sblock("y"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                y[vi, vj] = T.float32(0)
            y[vi, vj] = y[vi, vj] + x[vi, vk] * w[vk, vj]


TASK = Task("dense", dense, 2, "hash-dense", 2.0 * 16 * 64 * 64)


def profile() -> DeviceProfile:
    board = board_for(declared()["x86_64-v3"])
    assert board is not None
    return DeviceProfile("desk", board, board.hardware, 1)


def planned(tasks: tuple[Task, ...] = (TASK,)) -> Plan:
    spaces = {task.workload_hash: space_for(task, profile().hardware) for task in tasks}
    chosen = {key: Gensor().propose(space, profile(), (), 1, 0)[0] for key, space in spaces.items()}
    return Plan(spaces, chosen, {})


def lowered(tasks: tuple[Task, ...] = (TASK,)) -> LoweredModel:
    return LoweredModel("net", Signature((), ()), tvm.IRModule({}), (), tasks, tvm.target.Target("llvm"))


class Bench(Tuner):
    """A tuner whose measurements are made up by a function of the candidate."""

    def __init__(self, store: RecordStore, times: Any, folder: Path) -> None:
        super().__init__(None, profile(), store, folder, 0, {"command": "test"}, StageClock(Silence()))  # type: ignore[arg-type]
        self.times = times
        self.calls: list[Candidate] = []

    def _measure(self, task: Task, plan: Plan, candidate: Candidate, runner: Any) -> Measurement:
        self.calls.append(candidate)
        return measurement(self.times(len(self.calls)))

    def best(self, plan: Plan, count: int) -> Candidate:
        return self._best(TASK, plan, count, None, 0, count)  # type: ignore[arg-type]


def test_heavy_tasks_get_the_measurements_and_none_a_single_one() -> None:
    tasks = tuple(
        replace(TASK, name=f"t{i}", workload_hash=f"hash{i}", weight=weight)
        for i, weight in enumerate((1, 8, 2))
    )
    plan = planned(tasks)
    given = shares(lowered(tasks), plan, 40)
    assert sum(given.values()) == 40
    assert given["hash1"] > given["hash2"] > given["hash0"] >= 2
    assert shares(lowered(tasks), plan, 3) == {"hash1": 3}
    assert shares(lowered(tasks), plan, 1) == {}


def test_the_fastest_is_kept_and_every_measurement_recorded(tmp_path: Path) -> None:
    with RecordStore(tmp_path / "r.sqlite") as store:
        bench = Bench(store, lambda call: [3.0, 2.0, 1.0, 2.5][call - 1], tmp_path)
        plan = planned()
        best = bench.best(plan, 4)
        assert bench.calls[0] == plan.chosen["hash-dense"]
        assert best == bench.calls[2]
        assert len(list(store)) == 4
        again = Bench(store, lambda call: 9.0, tmp_path)
        assert again.best(plan, 4).decisions == best.decisions
        assert again.calls == [], "what was measured for the same command is not measured again"


def test_noise_does_not_change_the_program(tmp_path: Path) -> None:
    with RecordStore(tmp_path / "r.sqlite") as store:
        bench = Bench(store, lambda call: 1.0 if call == 1 else 0.99, tmp_path)
        plan = planned()
        assert bench.best(plan, 3) == plan.chosen["hash-dense"]


def test_a_candidate_that_kills_its_session_is_left_out(tmp_path: Path) -> None:
    def times(call: int) -> float:
        if call == 2:
            raise SessionLost("crashed")
        return 3.0 - call

    with RecordStore(tmp_path / "r.sqlite") as store:
        bench = Bench(store, times, tmp_path)
        best = bench.best(planned(), 2)
        assert best == bench.calls[0]
        assert len(list(store)) == 1


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


@pytest.mark.parametrize("trials", [2, 7, 100])
def test_never_more_than_asked_for(trials: int) -> None:
    tasks = tuple(replace(TASK, workload_hash=f"hash{i}", weight=i + 1) for i in range(5))
    assert sum(shares(lowered(tasks), planned(tasks), trials).values()) <= trials
