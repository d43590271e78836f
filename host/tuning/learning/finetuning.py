"""The trainer of the loop: fine-tuning in a child process, which ends with its parent.

The process lives for the whole tuning, because starting it takes longer than training on a batch:

    python -m host.tuning.learning.finetuning --nice 15

reads the name of a job from each line, and answers with lines of JSON: the steps that are done, then the end.
With `--engine ray://HEAD` it joins the cluster by itself, and a host of it takes the steps.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import queue
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from host.closing import Closing
from host.errors import EdgeError, TlmError, one_line
from host.execution import Engine, open_engine
from host.model import DeviceProfile
from host.options.engine import LOCAL
from host.records import Record
from host.tuning.background import LOW_PRIORITY
from host.tuning.learning.trainer import Report, TrainingResult

if TYPE_CHECKING:
    from host.schedules.design import DesignSpace
    from host.tlm.training.example import Example
    from host.tlm.training.fitting import FinetuneOptions

# Measured programs below which nothing is learned: some have to be withheld.
_MIN_PROGRAMS = 24
# Beside the board's checkpoints: how many records there were when it was last trained.
_LEARNED = "learned"
# Of a training between two batches of measurements, which wait for it: batches, and programs of a task that
# are learned, the fastest. A step costs as much as it has programs.
_STEPS, _KEEP = 24, 4
# So few steps forget much of pre-training unless they are small and repeat more of it.
_RATE, _REPEATED = 1e-3, 0.5
# Of the time of a training; the rest is for starting its process and for comparing the two models.
_SHARE_OF_STEPS = 0.5
# The same, of searches by the learned estimate before the last training of a run.
_SHARE_OF_SEARCH = 0.2
# Trainings of one fine-tuning: three that are judged, and one on everything.
_TRAININGS = 4


def between_batches(options: FinetuneOptions) -> FinetuneOptions:
    """The options of a training between two batches of measurements."""
    return replace(options, steps=_STEPS, keep=_KEEP, learning_rate=_RATE, replay_share=_REPEATED)


class FinetuneTrainer(Closing):
    """Fine-tunes the shipped model on all records of a board; a context manager.

    A new checkpoint is used, by this tuning and by later deployments, only if it is better than the current
    one on withheld records (`host.tlm.training.gate`).

    Args:
        profile: of the board.
        folder: for temporary files.
        seed: of the batches.
        threads: of the training process.
        low_priority: whether measurements run on the same machine, so that training has a low priority.
        steps: batches of one training between two batches of measurements, for each model that it trains
            (`host.tlm.training.finetune.finetune`).
        last_steps: the same, of the training at the end of a run; 0 for as many as its tasks ask for, and as
            fit into its time where it is known what a step takes.
        root: folder of fine-tuned checkpoints; None takes the user's.
        cluster: name of an engine (`host.execution.open_engine`) whose hosts take the steps; "" for the
            training process itself, which compares the two models in any case.
        spaces: of tasks for which a search by the learned estimate finds more to learn at the end of a run
            (`host.tuning.learning.searching`).
    """

    def __init__(
        self,
        profile: DeviceProfile,
        folder: Path,
        seed: int = 0,
        threads: int = 1,
        low_priority: bool = False,
        steps: int = _STEPS,
        last_steps: int = 0,
        root: Path | None = None,
        cluster: str = "",
        spaces: Sequence[DesignSpace] = (),
    ) -> None:
        self._profile = profile
        self._folder = folder
        self._seed = seed
        self._threads = threads
        self._nice = LOW_PRIORITY if low_priority else 0
        self._steps = steps
        self._last_steps = last_steps
        self._root = root
        self._cluster = cluster
        self._spaces = spaces
        self._process: _TrainingProcess | None = None
        self._job: FinetuneJob | None = None
        # Tasks of the last training that was started, and programs of a step of the last training of a run
        # over those of a step between two batches.
        self._tasks, self._larger = 0, 1.0
        self._replay: list[Example] | None = None

    def start(self, records: Sequence[Record], last: bool, seconds: float) -> FinetuneJob | None:
        """Begin to train; None while fewer than 24 programs, or those of too few tasks, are measured.

        See `trainer.Trainer`.

        Raises:
            TlmError: the package has no weights, or those in use are damaged.
        """
        from host.tlm.language.vocabulary import Vocabulary
        from host.tlm.model.card import read_card
        from host.tlm.model.checkpoints import model_for, prepare, shipped
        from host.tlm.training.finetune import FinetuneOptions, examples_of_records, write_job
        from host.tlm.training.gate import judgeable
        from host.tlm.training.replay import REPLAY, read_replay
        from host.tuning.learning.searching import lessons_of_board

        examples = examples_of_records(records, Vocabulary())
        if sum(len(example.programs) for example in examples) < _MIN_PROGRAMS or not judgeable(examples):
            return None
        base, present = shipped(), model_for(self._profile, self._root)
        options = FinetuneOptions(
            start=base,
            out=prepare(self._profile, read_card(base).weights, self._root),
            present=present,
            replay=base / REPLAY,
            seconds=_SHARE_OF_STEPS * seconds,
            seed=self._seed,
            threads=self._threads,
        )
        between = replace(between_batches(options), steps=self._steps)
        if self._replay is None:
            self._replay = read_replay(base / REPLAY, Vocabulary())
        sizes = [one.programs_of_step(examples, self._replay) for one in (options, between)]
        self._tasks, self._larger = len(examples), sizes[0] / sizes[1]
        lessons = {}
        if last and self._spaces:
            share = _SHARE_OF_SEARCH * seconds
            lessons = lessons_of_board(records, examples, self._spaces, present, self._seed, share)
        options = self._longest(options) if last else between
        job = self._folder / f"finetune-{len(records)}.json"
        write_job(job, options, examples, lessons)
        if self._process is None or not self._process.alive:
            self._process = _TrainingProcess(self._folder / "finetune.log", self._nice, self._cluster)
        self._job = FinetuneJob(job, self._process, options.out / _LEARNED, len(records))
        return self._job

    def _longest(self, options: FinetuneOptions) -> FinetuneOptions:
        """The options of the last training of a run.

        A training that its time ends stops at a high learning rate: steps that will not fit are not planned.
        What they take is known from steps between two batches, which have fewer programs.
        """
        options = replace(options, steps=self._last_steps)
        if self._last_steps or not options.seconds or self._job is None or not self._job.seconds_of_step:
            return options
        fitting = int(options.seconds / (_TRAININGS * self._job.seconds_of_step * self._larger))
        return replace(options, most_steps=min(options.most_steps, fitting))

    def reserve_s(self, seconds: float) -> float:
        """Estimated seconds of the last training of a run, if one between two batches took `seconds`."""
        from host.tlm.training.fitting import FinetuneOptions

        last = FinetuneOptions(Path(), Path(), steps=self._last_steps).steps_for(self._tasks)
        return seconds * self._larger * last / self._steps

    def learned_from(self) -> int:
        """The number of records of the board at the last completed training of any run."""
        from host.tlm.model.card import read_card
        from host.tlm.model.checkpoints import shipped, tuned_folder

        try:
            folder = tuned_folder(self._profile, read_card(shipped()).weights, self._root)
            return int((folder / _LEARNED).read_text())
        except (TlmError, OSError, ValueError):
            # Nothing was learned, or the file about it is lost: the training is repeated.
            return 0

    def close(self) -> None:
        """End the training process; more than once is no error."""
        if self._process is not None:
            self._process.end()


class FinetuneJob:
    """A fine-tuning under way.

    Args:
        job: the file of the job; see `host.tlm.training.finetune.write_job`.
        worker: the process that trains.
        learned: file for the number of records, written when the training is done.
        records: number of records that the training uses.

    Attributes:
        seconds_of_step: what a step took, the median; 0 before the end.
    """

    def __init__(self, job: Path, worker: _TrainingProcess, learned: Path, records: int) -> None:
        self._job = job
        self._learned, self._records = learned, records
        self._process = worker
        self._begin = time.monotonic()
        self.seconds_of_step = 0.0
        worker.ask(job)

    def result(self, report: Report) -> TrainingResult:
        """Wait for its end.

        Args:
            report: receives the steps that are done and those that there are.

        Raises:
            TlmError: it failed or was cancelled.
        """
        from host.files import write_whole
        from host.schedules.design import DesignSpace
        from host.tlm.model.card import read_card
        from host.tlm.proposer import Tlm
        from host.tlm.training.finetune import read_result

        clock = _StepClock()

        def told(done: int, total: int) -> None:
            clock.note(done)
            report(done, total)

        self._process.await_answer(told)
        self.seconds_of_step = clock.median_s
        found = read_result(self._job)
        write_whole(self._learned, f"{self._records}\n".encode())
        return TrainingResult(
            proposer=Tlm(found.checkpoint, estimate=DesignSpace.estimate_s) if found.accepted else None,
            digest=read_card(found.checkpoint).weights,
            before=found.before,
            after=found.after,
            seconds=time.monotonic() - self._begin,
            why=found.why,
        )

    def cancel(self) -> None:
        """End it with its process; more than once is no error."""
        self._process.end()


class _StepClock:
    """What the steps of a training take, from its reports."""

    def __init__(self) -> None:
        self._done, self._at = 0, math.nan
        self._took: list[float] = []

    def note(self, done: int) -> None:
        """So many steps are done now."""
        now = time.monotonic()
        if done > self._done and not math.isnan(self._at):
            self._took.append((now - self._at) / (done - self._done))
        self._done, self._at = done, now

    @property
    def median_s(self) -> float:
        """Seconds of a step, 0 if unknown; the comparisons between two trainings do not move the median."""
        return statistics.median(self._took) if self._took else 0.0


class _TrainingProcess:
    """The training process, on the side of its parent."""

    def __init__(self, log: Path, nice: int, cluster: str) -> None:
        self._log = log
        command = [sys.executable, "-m", "host.tuning.learning.finetuning", "--nice", str(nice)]
        command += ["--engine", cluster] if cluster else []
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                command,
                # The end of its input ends the process, however its parent ended.
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                # Ctrl-C is the loop's to handle.
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        """Whether the process is running."""
        return self._process.poll() is None

    def ask(self, job: Path) -> None:
        """Start a job.

        Raises:
            TlmError: it has ended.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{job}\n")
            self._process.stdin.flush()
        except (OSError, ValueError) as error:
            raise TlmError(self._end_reason()) from error

    def await_answer(self, report: Report) -> None:
        """Wait until the job is done; its steps are reported.

        Raises:
            TlmError: it failed, or the process ended.
        """
        assert self._process.stdout is not None
        while True:
            try:
                line = self._process.stdout.readline()
            except ValueError as error:
                raise TlmError("fine-tuning was ended") from error
            if not line:
                raise TlmError(self._end_reason())
            answer = json.loads(line)
            if "error" in answer:
                break
            report(answer["done"], answer["total"])
        if answer["error"]:
            raise TlmError(answer["error"])

    def _end_reason(self) -> str:
        code = self._process.wait()
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines and code > 0 else f"the training process ended with code {code}"

    def end(self) -> None:
        """Kill the process; its current job is lost. More than once is no error."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            # What it has not read by now is of no use to it.
            with contextlib.suppress(BrokenPipeError):
                assert pipe is not None
                pipe.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run jobs at a lower priority until the parent ends; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m host.tuning.learning.finetuning")
    parser.add_argument("--nice", type=int, default=0)
    parser.add_argument("--engine", default=LOCAL)
    options = parser.parse_args(arguments)
    os.nice(options.nice)
    # What libraries print goes to the log; answers alone go to the parent.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    jobs: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_listen, args=(jobs,), daemon=True).start()
    from host.tlm.training.finetune import run_job

    def answer(content: dict[str, Any]) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    engine: Engine | None = None
    while True:
        reason, job = "", Path(jobs.get())
        try:
            engine = engine or open_engine(options.engine)
            run_job(job, lambda step: answer({"done": step.done, "total": step.total}), engine)
        except EdgeError as error:
            reason = one_line(error)
        answer({"error": reason})


def _listen(jobs: queue.Queue[str]) -> None:
    """Read jobs from standard input, which ends when the parent ends."""
    for line in sys.stdin:
        jobs.put(line.rstrip("\n"))
    # At once: a checkpoint is put in use as a whole, and nothing else is left.
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
