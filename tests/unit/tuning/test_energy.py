"""A tuning for energy: its own budget, what earlier tunings count for, and what is proposed and taken."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from host.gensor import Gensor
from host.learned_estimate.observation import Observation, values_of
from host.model import Candidate, Measurement
from host.records import MODEL, Record, RecordOrigin, RecordStore
from host.schedules import DesignSpace, space_for
from host.schedules.families import rule_versions
from host.tuning.budget import Budget
from host.tuning.history import TuningHistory, tuning_key
from host.tuning.loop import tune
from host.tuning.options import TuneOptions
from host.tuning.proposers.bayesian import BayesianProposer, OpenTask, Source
from host.tuning.proposers.random_sampling import RandomSampling
from host.tuning.tasks import TuningTask
from tests.unit.records.test_choice import DATA, powered
from tests.unit.tuning.simulated import SimulatedRunner, dense_of, dense_space, profile

TASK = TuningTask(dense_space("t0"), 1e-5, energy=True)
LIGHT = TuningTask(dense_space("t1"), 1e-5)
MINE = "net/0/energy"


def record(
    number: int,
    seconds: float,
    watts: float | None,
    tuning: str,
    measured_in: str | None = None,
    task: TuningTask = TASK,
) -> Record:
    candidate = Candidate(task.key, "tiled", (("rows", number),), "gensor", 1.0, rule_versions()["tiled"])
    origin = RecordOrigin(tuning=tuning, measured_in=measured_in)
    return Record(candidate, DATA, powered(seconds, watts), origin=origin)


def history(
    folder: Path, records: Sequence[Record], exponent: float = 1.0, measured_in: str | None = None
) -> TuningHistory:
    with RecordStore(folder / f"{len(list(folder.iterdir()))}.sqlite") as store:
        store.append(records)
        return TuningHistory.read(store, profile(), MINE, measured_in, exponent)


def test_each_objective_has_a_budget_of_its_own() -> None:
    keys = [tuning_key("a" * 64, 0, MODEL, "auto", one) for one in ("latency", "energy", "edp")]
    assert len(set(keys)) == 3 and keys[0] == tuning_key("a" * 64, 0, MODEL)


def test_what_a_tuning_for_latency_has_timed_is_measured_again(tmp_path: Path) -> None:
    known = [record(1, 1.0, None, "net/0"), record(2, 2.0, 3.0, "other"), record(3, 3.0, None, MINE)]
    found = history(tmp_path, known)
    # Its own record without joules is settled: to ask again would not give any.
    assert [one.value("rows") for one, _ in found.measured_programs(TASK)] == [2, 3]
    assert [one.candidate.value("rows") for one in found.timed_records(TASK)] == [1, 2, 3]
    by_time = history(tmp_path, known, exponent=0.0)
    assert len(by_time.measured_programs(TASK)) == 3
    timed = [record(1, 1.0, None, "net/0"), record(1, 1.0, None, "net/0", task=LIGHT)]
    assert not history(tmp_path, timed).is_known(TASK)
    assert history(tmp_path, timed).is_known(LIGHT), "its energy is not measured"


def test_joules_without_watts_are_measured_again(tmp_path: Path) -> None:
    known = record(1, 1.0, 4.0, "other")
    energy = replace(known.measurement.energy, mean_w=None)
    without = replace(known, measurement=replace(known.measurement, energy=energy))
    assert history(tmp_path, [known]).is_known(TASK)
    assert not history(tmp_path, [without]).is_known(TASK)


def test_a_change_of_sensor_leaves_the_order_of_the_tasks_before(tmp_path: Path) -> None:
    known = [record(1, 1.0, 8.0, MINE), record(2, 2.0, 2.0, MINE)]
    later = record(1, 1.0, 50.0, MINE, task=LIGHT)
    other = replace(later.measurement, energy=replace(later.measurement.energy, boundary="package"))
    for records in (known, [*known, replace(later, measurement=other)]):
        found = history(tmp_path, records)
        best = found.best(TASK)
        # The trials of the task are judged by what its best program is chosen by.
        assert [one.seconds for one in found.trials][:2] == pytest.approx([1.6, 0.8])
        assert best is not None and best[0].candidate.value("rows") == 2
        assert found.task_state(TASK).best_s == pytest.approx(0.8)


def test_the_reference_is_free_where_its_power_was_unknown(tmp_path: Path) -> None:
    timed = record(1, 1.0, None, "net/0", MODEL)
    first, second = record(1, 1.0, 4.0, MINE, MODEL), record(2, 1.0, 3.0, MINE, MODEL)
    assert history(tmp_path, [timed, first, second], measured_in=MODEL).spent == 1
    assert history(tmp_path, [record(1, 1.0, 5.0, "x", MODEL), first], measured_in=MODEL).spent == 1
    light = record(1, 1.0, None, MINE, MODEL, LIGHT)
    assert history(tmp_path, [replace_tuning(light, "net/0"), light], measured_in=MODEL).spent == 1


def replace_tuning(one: Record, tuning: str) -> Record:
    return replace(one, origin=replace(one.origin, tuning=tuning), made_at="2026-01-01T00:00:00+00:00")


def test_trials_and_the_best_are_judged_by_cost(tmp_path: Path) -> None:
    known = [record(1, 1.0, 8.0, MINE), record(2, 2.0, 2.0, MINE), record(3, 1.0, None, "net/0")]
    known.append(record(1, 7.0, None, MINE, task=LIGHT))
    found = history(tmp_path, known)
    # At the median, 5 W, a second costs a second. The unknown one has the most of its task.
    assert [one.seconds for one in found.trials] == pytest.approx([1.6, 0.8, 1.6, 7.0])
    best = found.best(TASK)
    assert best is not None and (best[0].candidate.value("rows"), best[1]) == (2, 2.0)
    assert found.task_state(TASK).best_s == pytest.approx(0.8)
    by_time = history(tmp_path, known, exponent=0.0)
    assert by_time.trials is by_time.timed and by_time.task_state(TASK).best_s == 1.0


def threaded(rows: int) -> DesignSpace:
    space = dense_of(rows)
    return space_for(space.task, space.hardware, 4)


def watts(values: dict[str, int]) -> float:
    """Large tiles take less time, and more power than that is worth."""
    return 1.0 + values["parallel"] + 0.5 * values["vectors"] * values["rows"]


class Runner(SimulatedRunner):
    """Measures joules of the programs of heavy tasks."""

    def measure(self, task: TuningTask, library: Path) -> Measurement:
        one = self._built[library]
        self.done.append(one)
        values = values_of(one)
        return powered(task.space.estimate_s(values), watts(values) if task.energy else None)


def best_joules(folder: Path, exponent: float, rows: int) -> float:
    """True joules of the program that a tuning of ten trials takes."""
    space = threaded(rows)
    task = TuningTask(space, 1e-5, energy=True)
    sources = (Source(Gensor(), 8), Source(RandomSampling(8), 16))
    proposer = BayesianProposer(sources, exponent=exponent)
    options = TuneOptions(f"{rows}/{exponent}", Budget(10), concurrent=False, exponent=exponent)
    with RecordStore(folder / f"{rows}-{exponent}.sqlite") as store:
        result = tune([task], profile(), [proposer], Runner(folder), store, options)
    [tuned] = result.tasks
    assert tuned.best is not None and result.trials == 10
    values = values_of(tuned.best)
    return space.estimate_s(values) * watts(values)


def test_a_tuning_for_energy_takes_less_energy(tmp_path: Path) -> None:
    pairs = [(best_joules(tmp_path, 1.0, rows), best_joules(tmp_path, 0.0, rows)) for rows in (16, 32, 48)]
    assert all(energy <= 1.001 * latency for energy, latency in pairs)
    assert math.fsum(math.log(energy / latency) for energy, latency in pairs) < -0.1


def test_programs_that_were_only_timed_are_proposed() -> None:
    space = threaded(16)
    task = TuningTask(space, 1e-5, energy=True)
    constructed = [values_of(one) for one in Gensor().propose(space, profile(), (), 12, 0)]
    drawn = [space.sample(random.Random(one)) for one in range(40)]
    # A program that no source proposes.
    odd = min((one for one in drawn if one not in constructed), key=space.estimate_s)
    proposer = BayesianProposer((Source(Gensor(), 4),), exponent=1.0)
    # The others are as estimated, so that it is the program that is better, and not the task.
    others = [Observation.of(space, one, space.estimate_s(one)) for one in drawn if one != odd]
    proposer.learn([*others, Observation.of(space, odd, 0.2 * space.estimate_s(odd))])
    open_task = OpenTask(task, (), timed=[space.candidate(odd, "gensor")])
    found = proposer.propose_across([open_task], profile(), 4, 0)
    assert odd in [values_of(one.candidate) for one in found]
