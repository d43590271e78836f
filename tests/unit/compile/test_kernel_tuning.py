from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tvm.script import tirx as T

from host.compile.static_model import Plan
from host.compile.tuning.kernel_tuning import language_model, prefer_winner, recall, records_of
from host.deploy import CompileOptions
from host.errors import TlmError
from host.gensor import Gensor
from host.model import Candidate, DeviceProfile, Task
from host.progress import Silence, StageClock
from host.records import Record, RecordStore
from host.records.store import profile_data
from host.schedules import space_for
from targets import board_for, declared
from tests.unit.compare.samples import measurement


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


def trials_of(store: RecordStore, proposer: str, milliseconds: float) -> None:
    """First programs of four other tasks of this board."""
    made = [
        Record(
            Candidate(f"other{number}", "tiled", (("rows", 1),), proposer, 1.0, 4),
            profile_data(profile()),
            time,
        )
        for number, time in enumerate([measurement(milliseconds)] * 4)
    ]
    store.append(made)


class Model:
    """A language model that has another program than Gensor's, or a damaged checkpoint."""

    name = "tlm"

    def __init__(self, error: str = "") -> None:
        self.error = error
        self.asked: list[str] = []

    def propose(self, space: Any, profile: Any, history: Any, k: int, seed: int) -> list[Candidate]:
        self.asked.append(space.task.workload_hash)
        if self.error:
            raise TlmError(self.error)
        return [replace(one, proposer="tlm") for one in Gensor().propose(space, profile, (), 8, 1)[-1:]]


class Noting(Silence):
    """Keeps notes."""

    def __init__(self, notes: list[str]) -> None:
        self.notes = notes

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_the_winner_of_first_programs_makes_those_without_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = tuple(replace(TASK, name=name, workload_hash=f"hash-{name}") for name in ("one", "two"))
    plan = planned(tasks)
    path = tmp_path / "r.sqlite"
    notes: list[str] = []
    model = Model()
    monkeypatch.setattr("host.compile.tuning.kernel_tuning.language_model", lambda *_: (model, "digest"))

    def preferred(known: Plan) -> Plan:
        return prefer_winner(known, profile(), path, 0, StageClock(Noting(notes)))

    assert preferred(plan) is plan
    assert not path.exists()
    with RecordStore(path) as store:
        trials_of(store, "gensor", 2.0)
    assert preferred(plan) is plan, "nobody has beaten gensor yet"
    with RecordStore(path) as store:
        trials_of(store, "tlm", 1.0)
        store.append([Record(plan.chosen["hash-one"], profile_data(profile()), measurement(1.0))])
    recalled = recall(plan, profile(), path)
    chosen = preferred(recalled).chosen
    assert model.asked == ["hash-two"], "what is on record stays"
    assert (chosen["hash-one"].proposer, chosen["hash-two"].proposer) == ("gensor", "tlm")
    assert notes == []
    model.error = "model.json is damaged; copy the model again"
    assert preferred(recalled).chosen == recalled.chosen
    assert len(notes) == 1 and "model.json is damaged" in notes[0]


def test_without_weights_gensor_alone_proposes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("host.tlm.model.checkpoints.SHIPPED", tmp_path / "nothing")
    notes: list[str] = []
    assert language_model(profile(), notes.append) == (None, "")
    assert len(notes) == 1 and notes[0].startswith("the language model is not used: ")


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
