from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from host.errors import DeviceError, TlmError, UserError
from host.gensor import Gensor
from host.model import Candidate, Measurement
from host.records import Record, RecordOrigin, RecordStore
from host.records.store import profile_data
from host.schedules.proposer import Proposer
from host.tuning.budget import Budget
from host.tuning.learning.trainer import Report, TrainingResult
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


class Learning:
    """A trainer whose models say how many batches they have seen, and which tells when it trains."""

    def __init__(self, events: list[str], error: str = "") -> None:
        self.events = events
        self.error = error
        self.learned = 0

    def start(self, known: Sequence[Record], last: bool, seconds: float) -> Learning.Training:
        batches = {one.origin.batch for one in known}
        assert sorted(batches) == list(range(len(batches)))
        self.events.append(f"train on {len(batches)}")
        return Learning.Training(self, len(batches), len(known))

    def reserve_s(self, seconds: float) -> float:
        return seconds

    def learned_from(self) -> int:
        return self.learned

    class Training:
        def __init__(self, trainer: Learning, batches: int, records: int) -> None:
            self.trainer = trainer
            self.batches = batches
            self.records = records
            self.cancelled = threading.Event()

        def result(self, report: Report) -> TrainingResult:
            if self.trainer.error:
                raise TlmError(self.trainer.error)
            self.trainer.learned = self.records
            return TrainingResult(Model(self.batches), f"digest {self.batches}", 2.0, 2.0 / self.batches, 0.0)

        def cancel(self) -> None:
            self.cancelled.set()


class Model(Skilled):
    """A proposer that has learned from so many batches."""

    def __init__(self, batches: int) -> None:
        super().__init__("tlm", 4)
        self.batches = batches


@pytest.mark.parametrize("concurrent", [True, False])
def test_batch_i_plus_2_is_proposed_by_the_model_that_learned_up_to_batch_i(
    tmp_path: Path, concurrent: bool
) -> None:
    events: list[str] = []
    result = run(
        tmp_path,
        options(trials=30, concurrent=concurrent, bases={"tlm": "digest 0"}),
        proposers=(Model(0),),
        runner=SimulatedRunner(tmp_path, events),
        trainer=Learning(events),
    )
    trainings = [event for event in events if event.startswith("train")]
    digests = [trained.digest for trained in result.trainings]
    learned = {one.origin.batch: one.origin.base for one in records(tmp_path)}
    if concurrent:
        assert learned == {batch: f"digest {max(0, batch - 1)}" for batch in range(5)}
        assert digests == [f"digest {batches}" for batches in (1, 2, 3, 5)], "the last one learns from all"
    else:
        # They take turns: the newest model proposes, and there is half as much again to learn from each time.
        assert learned == {0: "digest 0", 1: "digest 1", 2: "digest 2", 3: "digest 3", 4: "digest 3"}
        assert digests == [f"digest {batches}" for batches in (1, 2, 3, 5)]
        assert [index for index, event in enumerate(events) if event in trainings] == [6, 13, 20, 33]
    assert trainings == [f"train on {batches}" for batches in (1, 2, 3, 5)]


def test_training_runs_while_the_device_measures(tmp_path: Path) -> None:
    """The training on batch 0 ends only when a measurement of batch 1 was seen."""
    measuring = threading.Event()

    class Waiting(Learning):
        def start(self, known: Sequence[Record], last: bool, seconds: float) -> Learning.Training:
            training = super().start(known, last, seconds)
            waits = len({one.origin.batch for one in known}) == 1

            class Late(Learning.Training):
                def result(self, report: Report) -> TrainingResult:
                    assert not waits or measuring.wait(20.0), "the device waits for the training"
                    return super().result(report)

            return Late(self, training.batches, training.records)

    class Runner(SimulatedRunner):
        def measure(self, task, library):  # type: ignore[no-untyped-def]
            if len(self.done) == 7:
                measuring.set()
            return super().measure(task, library)

    events: list[str] = []
    run(
        tmp_path,
        options(trials=18, concurrent=True),
        proposers=(Model(0),),
        runner=Runner(tmp_path, events),
        trainer=Waiting(events),
    )
    assert measuring.is_set()
    assert len(records(tmp_path)) == 18


def test_what_was_measured_before_the_learning_was_cut_off_is_learned_from(tmp_path: Path) -> None:
    run(tmp_path, options(trials=12), proposers=(Model(0),))
    events: list[str] = []
    trainer = Learning(events)
    result = run(tmp_path, options(trials=12), proposers=(Model(0),), trainer=trainer)
    assert (result.measured_now, events) == (0, ["train on 2"])
    run(tmp_path, options(trials=12), proposers=(Model(0),), trainer=trainer)
    assert events == ["train on 2"], "nothing is new"


class Endless(Learning):
    """A trainer whose last training ends only if it is cancelled."""

    def __init__(self) -> None:
        super().__init__([])
        self.given_s: list[float] = []
        self.cancelled = False

    def reserve_s(self, seconds: float) -> float:
        return 1.0

    def start(self, known: Sequence[Record], last: bool, seconds: float) -> Learning.Training:
        training = super().start(known, last, seconds)
        if not last:
            return training
        self.given_s.append(seconds)
        outer = self

        class Cut(Learning.Training):
            def result(self, report: Report) -> TrainingResult:
                report(1, 72)
                outer.cancelled = self.cancelled.wait(60.0)
                raise TlmError("fine-tuning was ended")

        return Cut(self, training.batches, training.records)


class Clocked(SimulatedRunner):
    """Measures on a clock that nothing else moves: a busy machine takes no time of a budget.

    Args:
        folder: see `SimulatedRunner`.
        monkeypatch: that puts the clock in.
        seconds: of a measurement.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        super().__init__(folder)
        self._now, self._seconds = 0.0, seconds
        monkeypatch.setattr(time, "monotonic", lambda: self._now)

    def measure(self, task: TuningTask, library: Path) -> Measurement:
        self._now += self._seconds
        return super().measure(task, library)


def test_the_last_training_is_part_of_a_budget_of_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = TuneOptions("net/0", Budget(seconds=6.0, batch=4), concurrent=False)
    trainer, listening = Endless(), Listening()
    result = run(
        tmp_path,
        how,
        proposers=(Skilled("random", 1),),
        runner=Clocked(tmp_path, monkeypatch, 0.5),
        trainer=trainer,
        listener=listening,
    )
    assert trainer.cancelled, "a training that does not end is cancelled when the time is up"
    assert [0.0 < seconds < 6.0 for seconds in trainer.given_s] == [True]
    assert listening.notes[-1].startswith("the time was up before the training ended")
    assert (1, 72) in [one.training for one in listening.reports], "its steps are reported"
    assert result.stopped == "time"


def test_a_training_that_time_is_not_left_for_is_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, listening = list[str](), Listening()
    run(
        tmp_path,
        TuneOptions("net/0", Budget(seconds=6.0, batch=1), concurrent=False),
        proposers=(Skilled("random", 1),),
        # One measurement takes longer than all of the budget.
        runner=Clocked(tmp_path, monkeypatch, 7.0),
        trainer=Learning(events),
        listener=listening,
    )
    assert events == []
    assert listening.notes == [
        "the time was up before the training ended; the next tuning learns from all of it"
    ]


def test_a_training_that_fails_leaves_the_model(tmp_path: Path) -> None:
    listening = Listening()
    result = run(
        tmp_path,
        options(bases={"tlm": "digest 0"}),
        proposers=(Model(0),),
        trainer=Learning([], error="out of memory"),
        listener=listening,
    )
    assert result.trials == 24
    assert result.trainings == ()
    assert listening.notes == ["the training failed: out of memory"]
    assert {one.origin.base for one in records(tmp_path)} == {"digest 0"}


def test_time_ends_a_tuning_and_counts_over_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    how = TuneOptions("net/0", Budget(seconds=10.0, batch=4))
    strangers = (Skilled("random", 1),)
    result = run(tmp_path, how, strangers, Clocked(tmp_path, monkeypatch, 0.5))
    assert result.stopped == "time"
    assert 0 < result.trials <= 21
    again = run(tmp_path, how, strangers, Clocked(tmp_path, monkeypatch, 0.5))
    assert again.stopped == "time"
    assert again.trials <= 21, "the second run has what the first one left"


def test_a_budget_of_time_ends_early_when_little_is_expected(tmp_path: Path) -> None:
    class Flat(SimulatedRunner):
        def measure(self, task, library):  # type: ignore[no-untyped-def]
            super().measure(task, library)
            from tests.unit.tuning.simulated import measured

            return measured(1.0)

    tasks = tuning_tasks(1)
    how = TuneOptions("net/0", Budget(seconds=3600.0, batch=1))
    result = run(tmp_path, how, proposers=(Skilled("random", 1),), runner=Flat(tmp_path), tasks=tasks)
    assert result.stopped == "gain"
    assert 10 < result.trials < 60


def test_a_budget_needs_an_end(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--trials N or --budget"):
        run(tmp_path, options(trials=0))
