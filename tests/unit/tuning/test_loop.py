from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from host.errors import DeviceError, UserError
from host.gensor import Gensor
from host.model import Candidate
from host.records import Record, RecordOrigin, RecordStore
from host.records.store import profile_data
from host.schedules.proposer import Proposer
from host.tuning.budget import Budget
from host.tuning.loop import tune
from host.tuning.options import TuneOptions, TuningProgress
from host.tuning.result import TuneResult
from host.tuning.tasks import TuningTask
from tests.unit.tuning.simulated import Broken, SimulatedRunner, Skilled, profile, truth, tuning_tasks


class Listening:
    """Remembers what a tuning tells."""

    def __init__(self) -> None:
        self.reports: list[TuningProgress] = []
        self.notes: list[str] = []

    def progress(self, progress: TuningProgress) -> None:
        self.reports.append(progress)

    def note(self, text: str) -> None:
        self.notes.append(text)


def options(trials: int = 24, batch: int = 6, **others: object) -> TuneOptions:
    budget = Budget(trials=trials, batch=batch)
    return TuneOptions("net/0", budget, origin=RecordOrigin(command="sdk tune net", seed=0), **others)  # type: ignore[arg-type]


def run(
    folder: Path,
    how: TuneOptions | None = None,
    proposers: Sequence[Proposer] = (),
    runner: SimulatedRunner | None = None,
    **others: object,
) -> TuneResult:
    with RecordStore(folder / "r.sqlite") as store:
        return tune(
            others.pop("tasks", None) or tuning_tasks(),  # type: ignore[arg-type]
            profile(),
            proposers or (Gensor(), Skilled("random", 1)),
            runner or SimulatedRunner(folder),
            store,
            how or options(),
            **others,  # type: ignore[arg-type]
        )


def records(folder: Path) -> list[Record]:
    with RecordStore(folder / "r.sqlite") as store:
        return list(store.select(profile_data(profile()), failed=True))


def programs(some: Sequence[Record]) -> set[tuple[str, object]]:
    return {(one.candidate.workload_hash, one.candidate.decisions) for one in some}


@pytest.mark.parametrize("concurrent", [False, True])
def test_the_budget_is_spent_on_different_programs_and_all_of_it_is_kept(
    tmp_path: Path, concurrent: bool
) -> None:
    listening = Listening()
    result = run(tmp_path, options(concurrent=concurrent, workers=2 if concurrent else 1), listener=listening)
    kept = records(tmp_path)
    assert (result.trials, result.measured_now, result.stopped) == (24, 24, "trials")
    assert len(kept) == len(programs(kept)) == 24
    assert {one.origin.tuning for one in kept} == {"net/0"}
    assert [one.origin.batch for one in kept] == [number // 6 for number in range(24)]
    assert all(one.origin.command == "sdk tune net" for one in kept)
    assert {one.candidate.proposer for one in kept} == {"gensor", "random"}
    for task, tuned in zip(tuning_tasks(), result.tasks, strict=True):
        times = [truth(task.space, one.candidate) for one in kept if one.candidate.workload_hash == task.key]
        assert tuned.trials == len(times) >= 2
        assert tuned.best is not None and truth(task.space, tuned.best) == tuned.best_s
        assert tuned.best_s is not None and min(times) <= tuned.best_s <= 1.02 * min(times)
    assert sum(figures.tasks_won for figures in result.proposers) == 3
    assert sum(figures.trials for figures in result.proposers) == 24
    assert [trials for trials, _ in result.curve] == list(range(25))
    seconds = [time for _, time in result.curve]
    assert seconds == sorted(seconds, reverse=True)
    assert [progress.trials for progress in listening.reports[:-1]] == list(range(25))
    assert listening.reports[0].unmeasured == 3
    assert listening.reports[-1].unmeasured == 0


def test_a_record_holds_the_sentence_of_its_task(tmp_path: Path) -> None:
    from host.tlm.language.description import describe_board, describe_task
    from host.tlm.language.sentence import encode_prompt

    run(tmp_path, options(trials=6))
    for one in records(tmp_path):
        task = next(task for task in tuning_tasks() if task.key == one.candidate.workload_hash)
        space = task.space
        words = encode_prompt(describe_board(space.hardware, space.threads), describe_task(space))
        assert one.origin.sentence == tuple(words)


def test_the_same_seed_measures_the_same_programs(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        run(tmp_path / name, options(trials=15, concurrent=True))
    first, second = ([one.candidate for one in records(tmp_path / name)] for name in ("a", "b"))
    assert first == second


def test_a_spent_budget_is_spent_and_a_larger_one_goes_on(tmp_path: Path) -> None:
    run(tmp_path, options(trials=10))
    again = run(tmp_path, options(trials=10))
    assert (again.trials, again.measured_now, again.stopped) == (10, 0, "trials")
    more = run(tmp_path, options(trials=16))
    assert (more.trials, more.measured_now) == (16, 6)
    assert len(programs(records(tmp_path))) == 16
    other = run(tmp_path, replace(options(trials=4), tuning="net/1"))
    assert (other.trials, other.measured_now) == (4, 4)
    assert len(programs(records(tmp_path))) == 20, "what the board has a record of is not measured again"


def test_a_device_that_is_lost_in_mid_round_loses_nothing(tmp_path: Path) -> None:
    runner = SimulatedRunner(tmp_path)
    runner.lose_after = 9
    with pytest.raises(DeviceError, match="does not come back"):
        run(tmp_path, runner=runner)
    assert len(records(tmp_path)) == 9
    result = run(tmp_path)
    assert (result.trials, result.measured_now) == (24, 15)
    assert len(programs(records(tmp_path))) == 24


def test_programs_that_fail_are_kept_with_the_reason_and_count(tmp_path: Path) -> None:
    def fails(one: Candidate) -> bool:
        return one.proposer == "random"

    result = run(tmp_path, runner=SimulatedRunner(tmp_path, fail=fails))
    kept = records(tmp_path)
    failed = [one for one in kept if one.failure]
    assert len(kept) == len(programs(kept)) == 24
    assert failed and all("does not compile" in one.failure for one in failed)
    assert {one.candidate.proposer for one in failed} == {"random"}
    by_name = {figures.name: figures for figures in result.proposers}
    assert by_name["random"].failed == len(failed) == by_name["random"].trials < 12
    assert by_name["random"].tasks_won == by_name["random"].wins == 0


def test_a_broken_language_model_is_told_of_once_and_the_loop_goes_on(tmp_path: Path) -> None:
    listening = Listening()
    result = run(tmp_path, proposers=(Gensor(), Broken()), listener=listening)
    assert result.trials == 24
    assert {one.candidate.proposer for one in records(tmp_path)} == {"gensor"}
    assert len([text for text in listening.notes if "weights.safetensors" in text]) == 1


def test_a_task_with_no_decisions_is_skipped_with_a_note(tmp_path: Path) -> None:
    tasks = tuning_tasks(2)
    bare = TuningTask(replace(tasks[1].space, decisions=()), 1e-5)
    listening = Listening()
    result = run(tmp_path, tasks=[tasks[0], bare], listener=listening)
    assert result.skipped == {"t1": "it has no decisions"}
    assert listening.notes == ["t1 is not tuned: it has no decisions"]
    assert {one.candidate.workload_hash for one in records(tmp_path)} == {"hash-t0"}


def test_nothing_to_tune_ends_at_once(tmp_path: Path) -> None:
    tasks = tuning_tasks(1)
    bare = TuningTask(replace(tasks[0].space, decisions=()), 1e-5)
    result = run(tmp_path, tasks=[bare])
    assert (result.trials, result.stopped) == (0, "programs")


def test_spaces_that_are_measured_whole_end_the_tuning(tmp_path: Path) -> None:
    task = tuning_tasks(1)[0]
    few = replace(
        task.space, decisions=tuple(replace(d, choices=d.choices[:1]) for d in task.space.decisions)
    )
    result = run(tmp_path, proposers=(Skilled("random", 1),), tasks=[TuningTask(few, 1e-5)])
    assert (result.trials, result.stopped) == (1, "programs")


def test_a_budget_needs_an_end(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--trials N or --budget"):
        run(tmp_path, options(trials=0))


def test_the_next_batch_begins_before_the_one_before_it_ends(tmp_path: Path) -> None:
    """With boards that would be idle: each record is of the batch that its program was proposed in."""

    class Overlapping(SimulatedRunner):
        joined = 0

        def run(self, programs, may_begin, more=lambda: ()):
            waiting = list(programs)
            while waiting:
                if len(waiting) == 1 and self.joined < 3:
                    # As boards do that have nothing else: they ask until the next batch is there.
                    until = time.monotonic() + 20.0
                    while not (found := more()) and time.monotonic() < until:
                        time.sleep(0.01)
                    self.joined += bool(found)
                    waiting += found
                yield from super().run([waiting.pop(0)], may_begin)

    runner = Overlapping(tmp_path)
    result = run(tmp_path, options(24, 6, overlap=True), runner=runner)
    kept = records(tmp_path)
    assert runner.joined == 3, "the last batch is measured in the run of the first"
    assert result.trials == len(kept) == len(programs(kept)) == 24
    assert Counter(one.origin.batch for one in kept) == {0: 6, 1: 6, 2: 6, 3: 6}
