"""Training between batches and at the end of a tuning, and budgets of time."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from host.errors import TlmError
from host.model import Measurement
from host.records import Record
from host.tuning import loop
from host.tuning.budget import Budget
from host.tuning.learning.trainer import Report, TrainingResult
from host.tuning.options import TuneOptions
from host.tuning.tasks import TuningTask
from tests.unit.tuning.simulated import SimulatedRunner, Skilled, tuning_tasks
from tests.unit.tuning.test_loop import Listening, options, records, run


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
    monkeypatch.setattr(loop, "_LEAST_TO_TRAIN_S", 0.5)
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


def test_trainings_leave_time_for_what_comes_after_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[bool, float, float]] = []

    class Noting(Learning):
        def start(self, known: Sequence[Record], last: bool, seconds: float) -> Learning.Training:
            given.append((last, seconds, 120.0 - time.monotonic()))
            return super().start(known, last, seconds)

    def tuned(seconds: float, folder: str) -> None:
        (tmp_path / folder).mkdir()
        run(
            tmp_path / folder,
            TuneOptions("net/0", Budget(seconds=seconds, batch=4), concurrent=False),
            proposers=(Skilled("random", 1),),
            runner=Clocked(tmp_path / folder, monkeypatch, 5.0),
            trainer=Noting([]),
        )

    tuned(120.0, "long")
    assert given[0] == (False, 50.0, 100.0), "a training between batches has half of the time that is left"
    assert all(seconds >= 20.0 for _, seconds, _ in given)
    assert all(seconds == (left_s if last else left_s / 2) for last, seconds, left_s in given)
    given.clear()
    tuned(30.0, "short")
    assert given == [], "PyTorch would be loaded for nothing"


def test_a_run_without_a_limit_trains_no_longer_than_it_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[bool, float]] = []

    class Noting(Learning):
        def start(self, known: Sequence[Record], last: bool, seconds: float) -> Learning.Training:
            given.append((last, seconds))
            return super().start(known, last, seconds)

    for seconds, folder in ((50.0, "long"), (0.5, "short")):
        (tmp_path / folder).mkdir()
        run(
            tmp_path / folder,
            options(trials=8, batch=4, concurrent=False),
            proposers=(Skilled("random", 1),),
            runner=Clocked(tmp_path / folder, monkeypatch, seconds),
            trainer=Noting([]),
        )
    # Eight measurements; a short run leaves time for a training of some use.
    assert given == [(False, 0.0), (True, 400.0), (False, 0.0), (True, 120.0)]


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
