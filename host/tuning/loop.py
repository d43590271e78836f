"""The loop: propose and build on the host, measure on the device, and train, all at the same time.

The order is that of the paper (TLM, OSDI'24): batches 0 and 1 come from the initial model; while batch i+1 is
on the device, training on everything up to batch i makes the model that proposes batch i+2. If the host is
the device and has no spare core, nothing may run during a measurement: the stages take turns, and the model
that proposes batch i+1 has learned from batch i.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from types import TracebackType

from host.errors import TlmError
from host.learned_estimate.observation import values_of
from host.model import DeviceProfile
from host.records import Record, RecordStore
from host.records.store import profile_data
from host.schedules.proposer import Proposer
from host.tuning.background import WorkExecutor, executor_for
from host.tuning.batches import Batch, BatchBuilder
from host.tuning.history import TuningHistory, model_seconds
from host.tuning.learning.trainer import TimeLimit, Trainer, Training, TrainingResult
from host.tuning.options import Listener, TuneOptions, TuningProgress
from host.tuning.result import TuneResult, summary
from host.tuning.runners.runner import Outcome, Program, Runner
from host.tuning.tasks import TuningTask

# Least growth of the records from one training to the next: beside measurements, and in turn with them.
# What was learned from a hundred programs changes little with eight more, and the device would wait for it.
_GROWTH_CONCURRENT, _GROWTH_IN_TURN = 1.25, 1.5
# Share of a budget of time that is kept for the training that ends the run, at most.
_RESERVED = 1 / 3
# No training begins with less time: it loads PyTorch and reads the records before its first step.
_LEAST_TO_TRAIN_S = 20.0
# A training at the end of a run without a limit takes no longer than the run did, or than this.
_LEAST_AT_THE_END_S = 120.0
# Share of the time that is left that a training between two batches may take at most: the batch comes after.
_BETWEEN_BATCHES = 1 / 2
_NO_TIME_TO_LEARN = "the time was up before the training ended; the next tuning learns from all of it"


def tune(
    tasks: Sequence[TuningTask],
    profile: DeviceProfile,
    proposers: Sequence[Proposer],
    runner: Runner,
    store: RecordStore,
    options: TuneOptions,
    trainer: Trainer | None = None,
    listener: Listener | None = None,
) -> TuneResult:
    """Spend a budget of measurements on the tasks of a model.

    Every record is in the store as soon as it is measured. Measurements of earlier runs of the same tuning
    count against the budget, and no program with a record of the board is measured again: after any
    interruption, the same call continues.

    Args:
        tasks: with decisions; one without is skipped with a note.
        profile: of the device.
        proposers: by name; those of a trained model are replaced as they learn.
        runner: builds and measures.
        store: of the records.
        options: of the tuning.
        trainer: makes better proposers from records; None to train nothing.
        listener: receives progress and notes.

    Raises:
        UserError: the budget has no end.
        DeviceError: the device was lost and does not come back; all measurements are in the store.
    """
    options.budget.check()
    notes = _DistinctNotes(listener)
    skipped = {task.name: "it has no decisions" for task in tasks if not task.space.decisions}
    for name, reason in skipped.items():
        notes.note(f"{name} is not tuned: {reason}")
    usable = [task for task in tasks if task.space.decisions]
    begin = time.monotonic()
    with _TuningRun(usable, profile, proposers, runner, store, options, trainer, notes) as loop:
        loop.run()
    return replace(
        summary(usable, loop.history, loop.measured, loop.spent),
        skipped=skipped,
        trainings=tuple(loop.trainings),
        stopped=loop.stopped,
        seconds=time.monotonic() - begin,
    )


class _DistinctNotes:
    """Passes each distinct note on once."""

    def __init__(self, listener: Listener | None) -> None:
        self.listener = listener
        self._passed_on: set[str] = set()

    def note(self, text: str) -> None:
        if text not in self._passed_on:
            self._passed_on.add(text)
            if self.listener is not None:
                self.listener.note(text)


class _TuningRun:
    """One run of a tuning."""

    def __init__(
        self,
        tasks: Sequence[TuningTask],
        profile: DeviceProfile,
        proposers: Sequence[Proposer],
        runner: Runner,
        store: RecordStore,
        options: TuneOptions,
        trainer: Trainer | None,
        notes: _DistinctNotes,
    ) -> None:
        self._tasks = {task.key: task for task in tasks}
        self._profile_data = profile_data(profile)
        self._runner = runner
        self._store = store
        self._options = options
        self._trainer = trainer
        self._notes = notes
        self.history = TuningHistory.read(
            store, profile, options.tuning, options.origin.measured_in, options.exponent
        )
        self._next = self.history.next_batch
        self._earlier_s = self.history.elapsed_s
        self._begin = time.monotonic()
        left_s = options.deadline.left_s
        # What is left of the budget, or of the time of this call if that is less; 0 for no limit.
        limit_s = options.budget.seconds or math.inf
        self._limit_s = min(limit_s, max(self._earlier_s + left_s, 0.0))
        self._longest_job_s = options.job_s
        self._executor: WorkExecutor = executor_for(options.concurrent, options.low_priority)
        self._batches = BatchBuilder(tuple(tasks), profile, proposers, runner.build, options, notes.note)
        self._lock = threading.Lock()
        self._training: Training | None = None
        self._ending = False
        self._trained_on = trainer.learned_from() if trainer is not None else 0
        self.trainings: list[TrainingResult] = []
        self.measured = 0
        self._spent_before = self.history.spent
        self.stopped = ""

    def __enter__(self) -> _TuningRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._batches.stop()
        self._end_training()
        self._executor.close()

    @property
    def elapsed_s(self) -> float:
        """Seconds of the tuning, earlier runs included."""
        return self._earlier_s + time.monotonic() - self._begin

    @property
    def spent(self) -> int:
        """Trials of this run: measurements that count against the budget."""
        return self.history.spent - self._spent_before

    def run(self) -> None:
        """Measure until a limit is reached, then train on the remaining records."""
        self._report_progress()
        ahead: deque[Future[Batch]] = deque()
        for _ in range(2 if self._options.concurrent else 1):
            ahead.append(self._prepare(learn=False))
        while not self.stopped:
            batch = self._await_batch(ahead.popleft())
            if not batch.programs:
                self.stopped = batch.ended
            elif self._measure(batch, ahead):
                ahead.append(self._prepare(self._another_batch(len(ahead)) and self._training_due()))
            else:
                self.stopped = "time"
        self._batches.stop()
        self._end_training()
        self._executor.close()
        self._train_on_all()

    def _prepare(self, learn: bool) -> Future[Batch]:
        """Start to train on the records so far, and to propose and build the next batch afterwards."""
        number, history, spent = self._next, self.history, self._spent()
        self._next += 1

        def work() -> Batch:
            if learn:
                self._train(history)
            return self._batches.next_batch(number, history, spent)

        return self._executor.submit(work)

    def _await_batch(self, future: Future[Batch]) -> Batch:
        """The next batch; an empty one if time is up before it is ready."""
        left_s = self._time_left_s()
        try:
            return future.result(None if math.isinf(left_s) else left_s)
        except TimeoutError:
            return Batch(self._next, (), "time")

    def _another_batch(self, ahead: int) -> bool:
        """Whether the budget allows another batch after those that are being prepared."""
        budget = self._options.budget
        return not budget.trials or self.history.spent + ahead * budget.batch_size < budget.trials

    def _training_due(self) -> bool:
        """Whether there are enough new records for a training."""
        growth = _GROWTH_CONCURRENT if self._options.concurrent else _GROWTH_IN_TURN
        return len(self.history.records) >= growth * self._trained_on

    def _measure(self, batch: Batch, ahead: deque[Future[Batch]]) -> bool:
        """Measure a batch, record by record; whether there was time for all of it.

        Args:
            batch: to be measured.
            ahead: the batches after it. Those that are ready begin before this one has ended, where the
                options say so, and others are prepared in their place.
        """
        count = 0
        numbers = {id(program): batch.number for program in batch.programs}
        programs = list(batch.programs)

        def more() -> tuple[Program, ...]:
            if not ahead or not ahead[0].done() or not (following := ahead[0].result()).programs:
                return ()
            ahead.popleft()
            ahead.append(self._prepare(self._another_batch(len(ahead)) and self._training_due()))
            programs.extend(following.programs)
            numbers.update((id(program), following.number) for program in following.programs)
            return following.programs

        def may_begin() -> bool:
            return not self._out_of_time() and self._time_left_s() >= self._longest_job_s

        run = self._runner.run
        begin = time.monotonic()
        overlap = self._options.overlap
        for outcome in run(batch.programs, may_begin, more) if overlap else run(batch.programs, may_begin):
            self._longest_job_s = max(self._longest_job_s, time.monotonic() - begin)
            record = self._record(numbers[id(outcome.program)], outcome)
            self._store.append([record])
            self.history = self.history.extended([record])
            self.measured += 1
            count += 1
            self._report_progress()
            begin = time.monotonic()
        return count == len(programs)

    def _record(self, number: int, outcome: Outcome) -> Record:
        """The record of one program, measured or failed."""
        program, measurement = outcome.program, outcome.measurement
        board = outcome.board or self._options.origin.device
        origin = replace(
            self._options.origin,
            tuning=self._options.tuning,
            batch=number,
            elapsed_s=round(self.elapsed_s, 3),
            task=program.task.name,
            sentence=program.sentence,
            base=program.base,
            device=board,
            epoch=self._options.epochs.get(board or ""),
            estimate_parts_s=program.task.space.estimated(values_of(program.candidate)),
            unit_factor=None if outcome.factor == 1.0 else round(outcome.factor, 6),
        )
        if measurement is None:
            self._notes.note(f"a program of {program.task.name} is left out: {outcome.failure}")
            return Record.failed(program.candidate, self._profile_data, outcome.failure, origin)
        return Record(program.candidate, self._profile_data, measurement, origin=origin)

    def _out_of_time(self) -> bool:
        """Whether the time for measuring is spent."""
        return self._spent() >= 1.0

    def _spent(self) -> float:
        """The share that is spent of the time for measuring; 0 without a limit.

        The time for measuring is the limit without the time that is kept for the last training.
        """
        if math.isinf(self._limit_s):
            return 0.0
        if not self._time_left_s():
            return 1.0
        reserve = _RESERVED * self._limit_s if self._trainer is not None else 0.0
        if self._trainer is not None and self.trainings:
            reserve = min(self._trainer.reserve_s(self.trainings[-1].seconds), reserve)
        if reserve < _LEAST_TO_TRAIN_S:
            # Nothing is kept for a training that would not begin.
            reserve = 0.0
        return self.elapsed_s / (self._limit_s - reserve)

    def _time_left_s(self) -> float:
        """Seconds that are left; infinite without a limit."""
        return max(0.0, self._limit_s - self.elapsed_s)

    def _train(self, history: TuningHistory, last: bool = False) -> None:
        """Train on the records of the board; the new model proposes from then on."""
        if self._trainer is None:
            return
        left_s = self._time_left_s() * (1.0 if last else _BETWEEN_BATCHES)
        if left_s < _LEAST_TO_TRAIN_S:
            if last:
                self._notes.note(_NO_TIME_TO_LEARN)
            return
        limit = TimeLimit(left_s)
        try:
            training = self._trainer.start(history.records, last, self._training_s(left_s, last))
            if training is None:
                return
            with self._lock:
                self._training = training
                if self._ending:
                    training.cancel()
            with limit.cancelling(training):
                trained = training.result(self._report_training if last else lambda done, total: None)
        except TlmError as error:
            if limit.passed:
                self._notes.note(_NO_TIME_TO_LEARN)
            elif not self._ending:
                self._notes.note(f"the training failed: {error}")
            return
        self._trained_on = len(history.records)
        self.trainings.append(trained)
        if trained.proposer is not None:
            self._batches.replace_proposer(trained.proposer, trained.digest)

    def _training_s(self, left_s: float, last: bool) -> float:
        """Seconds for which a training is planned; 0 for no limit."""
        if math.isfinite(left_s):
            return left_s
        return max(self.elapsed_s, _LEAST_AT_THE_END_S) if last else 0.0

    def _end_training(self) -> None:
        """End the training under way; the next one is not touched."""
        with self._lock:
            self._ending = True
            if self._training is not None:
                self._training.cancel()

    def _train_on_all(self) -> None:
        """Train on all records if there are new ones since the last training, for later deployments."""
        self._ending = False
        if len(self.history.records) > self._trained_on:
            # Also what an earlier run measured that was cut off while it learned.
            self._train(self.history, last=True)
        self._report_progress()

    def _report_training(self, done: int, total: int) -> None:
        self._report_progress((done, total))

    def _report_progress(self, training: tuple[int, int] | None = None) -> None:
        if self._notes.listener is None:
            return
        won = Counter[str]()
        times: dict[str, float] = {}
        for key, task in self._tasks.items():
            best = self.history.best(task)
            if best is not None:
                times[key] = best[1]
                won[best[0].candidate.proposer] += 1
        progress = TuningProgress(
            trials=self.history.spent,
            elapsed_s=self.elapsed_s,
            budget=self._options.budget,
            model_s=model_seconds(list(self._tasks.values()), times),
            unmeasured=len(self._tasks) - len(times),
            won=dict(won),
            loss=self.trainings[-1].after if self.trainings else None,
            training=training,
        )
        self._notes.listener.progress(progress)
