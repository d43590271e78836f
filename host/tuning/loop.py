"""The loop: propose and build on the host, measure on the device, train, all three at once.

The order is the paper's (TLM, OSDI'24): batches 0 and 1 come from the present model; while batch i+1 is on
the device, training on everything up to batch i makes the model that proposes batch i+2. Where the host is
the device and has no core to spare, nothing may run beside a measurement: the stages take turns, and the
model that proposes batch i+1 has learned from batch i.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from types import TracebackType

from host.errors import TlmError
from host.model import DeviceProfile
from host.records import Record, RecordStore
from host.records.store import profile_data
from host.schedules.proposer import Proposer
from host.tuning.background import Stage, stage_for
from host.tuning.batches import Batch, Preparer
from host.tuning.history import BoardRecords, model_seconds
from host.tuning.learning.trainer import Trained, Trainer, Training
from host.tuning.options import Moment, TuneOptions, Watcher
from host.tuning.result import TuneResult, summary
from host.tuning.tasks import Bench, Outcome, TuningTask

# Least growth of the records from one training to the next: beside measurements, and in turn with them.
# What was learned from a hundred programs changes little with eight more, and the device would wait for it.
_GROWTH_BESIDE, _GROWTH_IN_TURN = 1.25, 1.5
# Share of a budget of time that is kept for the training that ends the run, at most.
_RESERVED = 1 / 3


def tune(
    tasks: Sequence[TuningTask],
    profile: DeviceProfile,
    proposers: Sequence[Proposer],
    bench: Bench,
    store: RecordStore,
    options: TuneOptions,
    trainer: Trainer | None = None,
    watcher: Watcher | None = None,
) -> TuneResult:
    """Spend a budget of measurements on the tasks of a model.

    Every record is in the store as soon as it is measured. What earlier runs of the same tuning measured
    counts against the budget, and no program that the board has a record of is measured again: interrupted in
    any way, the same call goes on where it was.

    Args:
        tasks: with decisions; one without is skipped with a note.
        profile: of the device.
        proposers: the portfolio; those of a trained model are replaced as they learn.
        bench: builds and measures.
        store: where records are read from and kept.
        options: how.
        trainer: makes better proposers out of records; None where nothing is learned.
        watcher: told of progress.

    Raises:
        UserError: the budget has no end.
        DeviceError: the device went away and does not come back; what was measured is in the store.
    """
    options.budget.check()
    notes = _Notes(watcher)
    skipped = {task.name: "it has no decisions" for task in tasks if not task.space.decisions}
    for name, reason in skipped.items():
        notes.say(f"{name} is not tuned: {reason}")
    usable = [task for task in tasks if task.space.decisions]
    begin = time.monotonic()
    with _Loop(usable, profile, proposers, bench, store, options, trainer, notes) as loop:
        loop.run()
    return replace(
        summary(usable, loop.board, loop.measured),
        skipped=skipped,
        trainings=tuple(loop.trainings),
        stopped=loop.stopped,
        seconds=time.monotonic() - begin,
    )


class _Notes:
    """Passes every text on once."""

    def __init__(self, watcher: Watcher | None) -> None:
        self.watcher = watcher
        self._said: set[str] = set()

    def say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            if self.watcher is not None:
                self.watcher.note(text)


class _Loop:
    """One run of a tuning."""

    def __init__(
        self,
        tasks: Sequence[TuningTask],
        profile: DeviceProfile,
        proposers: Sequence[Proposer],
        bench: Bench,
        store: RecordStore,
        options: TuneOptions,
        trainer: Trainer | None,
        notes: _Notes,
    ) -> None:
        self._tasks = {task.key: task for task in tasks}
        self._profile_data = profile_data(profile)
        self._bench = bench
        self._store = store
        self._options = options
        self._trainer = trainer
        self._notes = notes
        self.board = BoardRecords.read(store, profile, options.tuning)
        self._next = self.board.next_batch
        self._earlier_s = self.board.elapsed_s
        self._begin = time.monotonic()
        self._stage: Stage = stage_for(options.beside, options.gentle)
        self._preparer = Preparer(tuple(tasks), profile, proposers, bench.build, options, notes.say)
        self._lock = threading.Lock()
        self._training: Training | None = None
        self._ending = False
        self._trained_on = trainer.learned_from() if trainer is not None else 0
        self.trainings: list[Trained] = []
        self.measured = 0
        self.stopped = ""

    def __enter__(self) -> _Loop:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._preparer.stop()
        self._end_training()
        self._stage.close()

    @property
    def elapsed_s(self) -> float:
        """Seconds of the tuning, earlier runs included."""
        return self._earlier_s + time.monotonic() - self._begin

    def run(self) -> None:
        """Measure until a limit is reached, then let the model learn from the rest."""
        self._tell()
        ahead: deque[Future[Batch]] = deque()
        for _ in range(2 if self._options.beside else 1):
            ahead.append(self._prepare(learn=False))
        while not self.stopped:
            batch = self._awaited(ahead.popleft())
            if not batch.items:
                self.stopped = batch.ended
            elif self._measure(batch):
                ahead.append(self._prepare(self._goes_on(len(ahead)) and self._due()))
            else:
                self.stopped = "time"
        self._preparer.stop()
        self._end_training()
        self._stage.close()
        self._learn_the_rest()

    def _prepare(self, learn: bool) -> Future[Batch]:
        """Begin to train on what is measured by now, and to propose and build the next batch then."""
        number, board, elapsed_s = self._next, self.board, self.elapsed_s
        self._next += 1

        def work() -> Batch:
            if learn:
                self._learn(board)
            return self._preparer.batch(number, board, elapsed_s)

        return self._stage.submit(work)

    def _awaited(self, future: Future[Batch]) -> Batch:
        """A batch when it is ready; an empty one when time is up before."""
        limit = self._options.budget.seconds
        try:
            return future.result(max(0.0, limit - self.elapsed_s) if limit else None)
        except TimeoutError:
            return Batch(self._next, (), "time")

    def _goes_on(self, ahead: int) -> bool:
        """Whether there will be another batch behind those that are ahead."""
        budget = self._options.budget
        return not budget.trials or len(self.board.mine) + ahead * budget.batch_size < budget.trials

    def _due(self) -> bool:
        """Whether there is enough new to learn from."""
        growth = _GROWTH_BESIDE if self._options.beside else _GROWTH_IN_TURN
        return len(self.board.records) >= growth * self._trained_on

    def _measure(self, batch: Batch) -> bool:
        """Measure a batch, record by record; whether there was time for all of it."""
        count = 0
        for outcome in self._bench.measured(batch.items, lambda: not self._out_of_time()):
            record = self._record(batch.number, outcome)
            self._store.append([record])
            self.board = self.board.added([record])
            self.measured += 1
            count += 1
            self._tell()
        return count == len(batch.items)

    def _record(self, number: int, outcome: Outcome) -> Record:
        """The record of one program, measured or failed."""
        item, measurement = outcome.item, outcome.measurement
        origin = {
            **self._options.origin,
            "tuning": self._options.tuning,
            "batch": number,
            "elapsed_s": round(self.elapsed_s, 3),
            "task": item.task.name,
            **item.origin,
        }
        if outcome.unit:
            origin["device"] = outcome.unit
        if outcome.factor != 1.0:
            origin["unit_factor"] = round(outcome.factor, 6)
        if measurement is None:
            self._notes.say(f"a program of {item.task.name} is left out: {outcome.failure}")
            return Record.failed(item.candidate, self._profile_data, outcome.failure, origin)
        return Record(item.candidate, self._profile_data, measurement, origin=origin)

    def _out_of_time(self) -> bool:
        """Whether a budget of time is spent, but for the training that ends the run."""
        limit = self._options.budget.seconds
        reserve = 0.0
        if self._trainer is not None and self.trainings:
            reserve = min(self._trainer.reserve_s(self.trainings[-1].seconds), _RESERVED * limit)
        return bool(limit) and self.elapsed_s + reserve >= limit

    def _learn(self, board: BoardRecords, last: bool = False) -> None:
        """Train on the records of the board; the model that comes of it proposes from now on."""
        if self._trainer is None:
            return
        try:
            training = self._trainer.start(board.records, last)
            if training is None:
                return
            with self._lock:
                self._training = training
                if self._ending:
                    training.cancel()
            trained = training.result()
        except TlmError as error:
            if not self._ending:
                self._notes.say(f"the model learned nothing: {error}")
            return
        self._trained_on = len(board.records)
        self.trainings.append(trained)
        if trained.proposer is not None:
            self._preparer.replace(trained.proposer, trained.digest)

    def _end_training(self) -> None:
        """End the training under way; the next one is not touched."""
        with self._lock:
            self._ending = True
            if self._training is not None:
                self._training.cancel()

    def _learn_the_rest(self) -> None:
        """Train on what came after the last training, for the deployments to come."""
        self._ending = False
        if len(self.board.records) > self._trained_on:
            # Also what an earlier run measured that was cut off while it learned.
            self._learn(self.board, last=True)
        self._tell()

    def _tell(self) -> None:
        if self._notes.watcher is None:
            return
        won = Counter[str]()
        times: dict[str, float] = {}
        for key, task in self._tasks.items():
            best = self.board.best(task)
            if best is not None:
                times[key] = best[1]
                won[best[0].candidate.proposer] += 1
        moment = Moment(
            trials=len(self.board.mine),
            elapsed_s=self.elapsed_s,
            budget=self._options.budget,
            model_s=model_seconds(list(self._tasks.values()), times),
            unmeasured=len(self._tasks) - len(times),
            won=dict(won),
            loss=self.trainings[-1].after if self.trainings else None,
        )
        self._notes.watcher.moment(moment)
