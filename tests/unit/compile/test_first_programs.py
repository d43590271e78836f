"""What earlier measurements of a board say of kernels without a record."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from host.compile.static_model import Plan
from host.compile.tuning.first_programs import language_model, learn_from_others
from host.compile.tuning.kernel_tuning import recall
from host.errors import TlmError
from host.gensor import Gensor
from host.learned_estimate.observation import values_of
from host.model import Candidate
from host.progress import Silence, StageClock
from host.records import MODEL, Record, RecordOrigin, RecordStore
from host.records.store import profile_data
from host.schedules import DesignSpace
from host.schedules.families import rule_versions
from host.schedules.proposer import Estimate
from tests.unit.compare.samples import measurement
from tests.unit.compile.test_kernel_tuning import TASK, planned, profile
from tests.unit.learned_estimate.test_estimate import drawn
from tests.unit.schedules.cpu.test_chain import chain_space
from tests.unit.tuning.simulated import dense_space, measured


def trials_of(store: RecordStore, proposer: str, milliseconds: float, measured_in: str = "") -> None:
    """First programs of six other tasks of this board."""
    origin = RecordOrigin(measured_in=measured_in or None)
    made = [
        Record(
            Candidate(f"other{number}", "tiled", (("rows", 1),), proposer, 1.0, rule_versions()["tiled"]),
            profile_data(profile()),
            time,
            origin=origin,
        )
        for number, time in enumerate([measurement(milliseconds)] * 6)
    ]
    store.append(made)


class Model:
    """A language model that has another program than Gensor's, or a damaged checkpoint."""

    name = "tlm"

    def __init__(self, error: str = "") -> None:
        self.error = error
        self.asked: list[str] = []
        self.values: dict[str, int] = {}

    def propose(self, space: Any, profile: Any, history: Any, k: int, seed: int) -> list[Candidate]:
        self.asked.append(space.task.workload_hash)
        if self.error:
            raise TlmError(self.error)
        if self.values:
            return [space.candidate(self.values, "tlm")]
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
    monkeypatch.setattr("host.compile.tuning.first_programs.language_model", lambda *_: (model, "digest"))

    def preferred(known: Plan) -> Plan:
        return learn_from_others(known, profile(), path, 0, StageClock(Noting(notes)))

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
    [note] = notes
    assert note == (
        "the language model proposes: on 6 kernels of this board its first programs were 2.00 times as fast "
        "as Gensor's (2.00 to 2.00)"
    )
    model.error = "model.json is damaged; copy the model again"
    assert preferred(recalled).chosen == recalled.chosen
    assert len(notes) == 3 and "model.json is damaged" in notes[2]


def test_without_weights_gensor_alone_proposes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("host.tlm.model.checkpoints.SHIPPED", tmp_path / "nothing")
    notes: list[str] = []
    assert language_model(profile(), notes.append) == (None, "")
    assert len(notes) == 1 and notes[0].startswith("the language model is not used: ")


def narrow_s(space: DesignSpace, values: Any) -> float:
    """A board on which tall tiles cost much more than the estimate says."""
    return space.estimate_s(values) * (1.0 + 0.8 * math.log2(values["rows"]))


def taught(path: Path, seconds: Any, count: int = 12) -> None:
    """Records of eight tasks of four models, with so many programs each."""
    with RecordStore(path) as store:
        for number in range(8):
            space = dense_space(f"taught{number}")
            for values in drawn(space, count, seed=number):
                origin = RecordOrigin(
                    model=f"model{number % 4}", measured_in=MODEL, estimate_parts_s=space.estimated(values)
                )
                time = measured(seconds(space, values))
                store.append(
                    [Record(space.candidate(values, "random"), profile_data(profile()), time, origin=origin)]
                )


def test_what_other_kernels_taught_chooses_the_first_program(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    taught(path, narrow_s)
    notes: list[str] = []
    plan = planned()
    found = learn_from_others(plan, profile(), path, 0, StageClock(Noting(notes)))
    space = plan.spaces["hash-dense"]
    before, after = (values_of(one.chosen["hash-dense"]) for one in (plan, found))
    assert narrow_s(space, after) < 0.9 * narrow_s(space, before)
    assert found.chosen["hash-dense"].proposer == "bayesian"
    [note] = notes
    assert "96 measured programs of other kernels" in note and "the programs of 1 kernels" in note
    # A program on record is not touched.
    recalled = replace(plan, from_database=frozenset(plan.chosen))
    assert learn_from_others(recalled, profile(), path, 0, StageClock(Noting(notes))) is recalled


def test_a_chain_is_chosen_by_what_kernels_of_its_parts_rule_taught(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    taught(path, narrow_s)
    space, _ = chain_space("two parts with stride 2")
    [begin] = Gensor().propose(space, profile(), (), 1, 0)
    key = space.task.workload_hash
    plan = Plan({key: space}, {key: begin}, {})
    notes: list[str] = []
    found = learn_from_others(plan, profile(), path, 0, StageClock(Noting(notes))).chosen[key]

    def seconds(values: dict[str, int]) -> float:
        own = [
            {name.removeprefix(part): value for name, value in values.items() if name.startswith(part)}
            for part in ("first_", "second_")
        ]
        return sum(narrow_s(part, some) for part, some in zip(space.parts, own, strict=True))

    assert seconds(values_of(found)) < 0.95 * seconds(values_of(begin))
    assert (found.proposer, found.rule) == ("bayesian", "chain")
    assert notes == [
        "rule chain: measured programs of rule tiled, as its parts are, choose the programs of 1 kernels"
    ]


def test_the_learned_estimate_chooses_from_the_language_model_s_programs_where_those_were_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.sqlite"
    taught(path, narrow_s)
    plan = planned()
    space = plan.spaces["hash-dense"]
    model = Model()
    model.values = min(drawn(space, 300, seed=9), key=lambda values: narrow_s(space, values))
    monkeypatch.setattr("host.compile.tuning.first_programs.language_model", lambda *_: (model, "digest"))
    # What the search looks at by itself is one program of Gensor's.
    monkeypatch.setattr("host.learned_estimate.search._CONSTRUCTED", 1)
    monkeypatch.setattr("host.learned_estimate.search._RANDOM", 0)
    monkeypatch.setattr("host.learned_estimate.search._DESCENTS", 0)

    def chosen() -> dict[str, int]:
        notes: list[str] = []
        found = learn_from_others(plan, profile(), path, 0, StageClock(Noting(notes)))
        return values_of(found.chosen["hash-dense"])

    alone = chosen()
    assert model.asked == [] and narrow_s(space, alone) > 1.1 * narrow_s(space, model.values)
    with RecordStore(path) as store:
        trials_of(store, "gensor", 2.0, MODEL)
        trials_of(store, "tlm", 1.0, MODEL)
    assert chosen() == model.values and model.asked == ["hash-dense"]


by_space = DesignSpace.estimate_s


class Writing(Model):
    """A language model that writes the two best of some programs: by the estimate it is given, and by that of
    the space."""

    def __init__(self) -> None:
        super().__init__()
        self.estimate: Estimate = by_space

    def by(self, estimate: Estimate) -> Writing:
        other = Writing()
        other.estimate, other.asked = estimate, self.asked
        return other

    def propose(self, space: Any, profile: Any, history: Any, k: int, seed: int) -> list[Candidate]:
        self.asked.append(space.task.workload_hash)
        programs = drawn(space, 300, seed=9)
        both = [min(programs, key=lambda values: one(space, values)) for one in (self.estimate, by_space)]
        return [space.candidate(values, "tlm", self.estimate(space, values)) for values in both]


def test_the_language_model_writes_by_what_the_board_has_taught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.sqlite"
    taught(path, narrow_s)
    with RecordStore(path) as store:
        trials_of(store, "gensor", 2.0, MODEL)
        trials_of(store, "tlm", 1.0, MODEL)
    plan, model = planned(), Writing()
    space = plan.spaces["hash-dense"]
    monkeypatch.setattr("host.compile.tuning.first_programs.language_model", lambda *_: (model, "digest"))
    # The search looks at no more than what it is given.
    monkeypatch.setattr("host.learned_estimate.search._CONSTRUCTED", 1)
    monkeypatch.setattr("host.learned_estimate.search._RANDOM", 0)
    monkeypatch.setattr("host.learned_estimate.search._DESCENTS", 0)

    def chosen() -> Candidate:
        return learn_from_others(plan, profile(), path, 0, StageClock(Noting([]))).chosen["hash-dense"]

    found = chosen()
    by_estimate = min(drawn(space, 300, seed=9), key=space.estimate_s)
    assert model.asked == ["hash-dense"]
    assert narrow_s(space, values_of(found)) < 0.9 * narrow_s(space, by_estimate)
    # Its estimate is that of the space, as that of every other program is.
    assert found.estimate_s == space.estimate_s(values_of(found))
    # What was found by what the board has taught has to promise enough beside what was proposed without it.
    monkeypatch.setattr("host.learned_estimate.estimate._CAUTION", 1e3)
    found, given = chosen(), plan.chosen["hash-dense"]
    proposed = {(str(by_estimate), "tlm"), (str(values_of(given)), given.proposer)}
    assert (str(values_of(found)), found.proposer) in proposed


def test_times_that_say_nothing_choose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    generator = random.Random(0)

    def luck(space: DesignSpace, values: Any) -> float:
        return space.estimate_s(values) * generator.lognormvariate(0.0, 0.3)

    taught(path, luck)
    plan = planned()
    notes: list[str] = []
    assert learn_from_others(plan, profile(), path, 0, StageClock(Noting(notes))) is plan
    assert notes == []
