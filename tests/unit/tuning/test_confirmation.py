"""The last trials of a tuning inside of the model: what would replace a reference is measured again."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from host.gensor import Gensor
from host.model import Measurement
from host.records import MODEL, Record, RecordOrigin, RecordStore
from host.records.store import profile_data
from host.tuning.batches import BatchBuilder
from host.tuning.budget import Budget
from host.tuning.history import TuningHistory
from host.tuning.options import TuneOptions
from host.tuning.proposers.bayesian import BayesianProposer, Source
from host.tuning.proposers.random_sampling import RandomSampling
from host.tuning.tasks import TuningTask
from tests.unit.tuning.simulated import SimulatedRunner, Skilled, measured, profile, truth, tuning_tasks
from tests.unit.tuning.test_loop import options, programs, records, run


class NoisyRunner(SimulatedRunner):
    """Measures each program with a luck of its own every time."""

    def measure(self, task: TuningTask, library: Path) -> Measurement:
        once = super().measure(task, library)
        luck = random.Random(f"{task.key}/{len(self.done)}").uniform(1.0, 1.2)
        return replace(once, times_s=tuple(luck * time for time in once.times_s))


def referenced_tasks() -> list[TuningTask]:
    """Tasks as inside of a model, each with a program to compare the others with."""
    tasks = tuning_tasks()
    found = [Skilled("first", 1).propose(task.space, profile(), (), 1, 0)[0] for task in tasks]
    return [replace(task, reference=first) for task, first in zip(tasks, found, strict=True)]


@pytest.mark.parametrize("concurrent", [False, True])
def test_what_replaces_a_reference_is_measured_again(tmp_path: Path, concurrent: bool) -> None:
    tasks = referenced_tasks()
    first = {task.key: task.reference for task in tasks if task.reference is not None}
    how = replace(options(trials=30, batch=9, concurrent=concurrent), confirm=True)
    origin = replace(how.origin, measured_in=MODEL)
    result = run(tmp_path, replace(how, origin=origin), runner=NoisyRunner(tmp_path), tasks=tasks)
    kept = records(tmp_path)
    # Every job times the references anyway: they count against no budget.
    assert (result.trials, len(kept)) == (30, 30 + len(tasks))
    assert result.curve[-1][0] == 30
    for task in tasks:
        own = [one.candidate.decisions for one in kept if one.candidate.workload_hash == task.key]
        assert own[0] == first[task.key].decisions, "the reference comes first"
    again = Counter((one.candidate.workload_hash, one.candidate.decisions) for one in kept)
    assert set(again.values()) == {1, 2}
    for tuned in result.tasks:
        assert tuned.best is not None
        confirmed = again[tuned.workload_hash, tuned.best.decisions] == 2
        assert confirmed or tuned.best.decisions == first[tuned.workload_hash].decisions


@pytest.mark.parametrize("concurrent", [False, True])
def test_one_proposer_that_learns_divides_the_trials_itself(tmp_path: Path, concurrent: bool) -> None:
    tasks = referenced_tasks()
    how = replace(options(trials=20, batch=6, concurrent=concurrent), confirm=True)
    how = replace(how, origin=replace(how.origin, measured_in=MODEL))
    proposer = BayesianProposer((Source(Gensor(), 8), Source(RandomSampling(8), 24)))
    result = run(tmp_path, how, [proposer], NoisyRunner(tmp_path), tasks=tasks)
    kept = records(tmp_path)
    assert (result.trials, len(kept)) == (20, 20 + len(tasks))
    assert [one.candidate for one in kept[: len(tasks)]] == [task.reference for task in tasks]
    assert result.model_s <= result.first_model_s
    again = run(tmp_path, how, [proposer], NoisyRunner(tmp_path), tasks=tasks)
    assert (again.measured_now, again.trials) == (0, 20), "the budget is spent"


def test_without_references_nothing_is_measured_again(tmp_path: Path) -> None:
    run(tmp_path, replace(options(trials=24), confirm=True), runner=NoisyRunner(tmp_path))
    assert len(programs(records(tmp_path))) == 24


def test_kernels_alone_and_inside_of_a_model_are_two_histories(tmp_path: Path) -> None:
    run(tmp_path, options(trials=6))
    how = options(trials=6)
    inside = replace(how, tuning="net/0/model", origin=replace(how.origin, measured_in=MODEL))
    tasks = referenced_tasks()
    result = run(tmp_path, inside, tasks=tasks)
    assert (result.trials, result.measured_now) == (6, 6 + len(tasks))
    inside_first = [one.candidate for one in records(tmp_path)[6 : 6 + len(tasks)]]
    assert inside_first == [task.reference for task in tasks], "what was measured alone does not count"


def test_late_in_a_budget_of_time_programs_are_measured_again(tmp_path: Path) -> None:
    [task, *_] = tuning_tasks()
    skilled = Skilled("skilled", 4)
    reference, better, *_ = sorted(
        skilled.propose(task.space, profile(), (), 12, 0), key=lambda one: -truth(task.space, one)
    )
    task = replace(task, reference=reference)
    how = TuneOptions("net/0", Budget(seconds=60.0, batch=4), confirm=True)
    builder = BatchBuilder([task], profile(), [skilled], SimulatedRunner(tmp_path).build, how, print)
    data = profile_data(profile())
    with RecordStore(tmp_path / "r.sqlite") as store:
        store.append(
            Record(one, data, measured(truth(task.space, one)), origin=RecordOrigin(tuning="net/0", batch=0))
            for one in (reference, better)
        )
        history = TuningHistory.read(store, profile(), "net/0")
    early = [one.candidate for one in builder.next_batch(1, history, spent=0.2).programs]
    assert len(early) == 4 and better not in early
    late = builder.next_batch(2, history, spent=0.9)
    assert [one.candidate for one in late.programs] == [better]
    # It is on its way: what follows is something new.
    assert better not in [one.candidate for one in builder.next_batch(3, history, spent=0.95).programs]
    assert builder.next_batch(4, history, spent=1.0).ended == "time"


@pytest.mark.parametrize(
    ("budget", "sizes"), [(Budget(seconds=60.0), [4, 16]), (Budget(trials=80), [10, 10])]
)
def test_the_first_batch_of_a_budget_of_time_is_small(
    budget: Budget, sizes: list[int], tmp_path: Path
) -> None:
    """All of a batch is built before its first program is measured."""
    [task, *_] = tuning_tasks()
    how, build = TuneOptions("net/0", budget), SimulatedRunner(tmp_path).build
    builder = BatchBuilder([task], profile(), [Skilled("skilled", 4)], build, how, print)
    with RecordStore(tmp_path / "r.sqlite") as store:
        history = TuningHistory.read(store, profile(), "net/0")
    assert [len(builder.next_batch(number, history, spent=0.0).programs) for number in (0, 1)] == sizes


def test_a_larger_budget_replaces_a_confirmed_program_by_a_better_one(tmp_path: Path) -> None:
    [task, *_] = tuning_tasks()
    slowest, middle, best = sorted(
        Skilled("skilled", 1).propose(task.space, profile(), (), 3, 0),
        key=lambda one: -truth(task.space, one),
    )
    task = replace(task, reference=slowest)
    # The reference, a program that was measured again, and one of a later run.
    times = [(slowest, 3.0, 0), (middle, 2.0, 0), (middle, 2.0, 1), (best, 1.0, 2)]
    data = profile_data(profile())
    with RecordStore(tmp_path / "r.sqlite") as store:
        for one, seconds, batch in times:
            origin = RecordOrigin(tuning="net/0", batch=batch, measured_in=MODEL)
            store.append([Record(one, data, measured(seconds), origin=origin)])
        history = TuningHistory.read(store, profile(), "net/0", MODEL)
    how = TuneOptions("net/0", Budget(trials=4), confirm=True)
    builder = BatchBuilder([task], profile(), [], SimulatedRunner(tmp_path).build, how, print)
    [again] = builder.next_batch(3, history, spent=0.0).programs
    assert again.candidate == best
