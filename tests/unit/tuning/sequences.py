"""What a tuning proposes and records, in order, on boards of known truth.

python -m tests.unit.tuning.sequences       writes the recording that test_sequences.py compares with
"""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from host.gensor import Gensor
from host.model import Candidate, Measurement
from host.records import RecordStore
from host.tuning.budget import Budget
from host.tuning.loop import tune
from host.tuning.options import TuneOptions
from host.tuning.runners.pool import WorkerPool
from host.tuning.runners.reconnect import ReconnectPolicy
from host.tuning.runners.runner import Outcome, Program
from host.tuning.tasks import TuningTask
from tests.unit.tuning.simulated import Skilled, dense_space, measured, profile, truth, tuning_tasks

RECORDING = Path(__file__).with_name("sequences.json")
SEEDS = (0, 1, 2)
_TRIALS, _BATCH = 21, 6


class TrueRunner:
    """Measures by formula on boards that answer in the order in which their programs began.

    Which board takes a program is chance, so that each waits with its answer until those of all programs
    before were taken: the same runs then give the same records.
    """

    def __init__(self, folder: Path, boards: int) -> None:
        self._folder = folder
        self._built: dict[str, tuple[int, TuningTask, Candidate]] = {}
        self._changed = threading.Condition()
        self._next = 0
        self._order: list[str] = []
        reference = folder / "reference.so"
        references = [(TuningTask(dense_space(), 1e-5), reference)] if boards > 1 else []
        policy = ReconnectPolicy(limit_s=60.0)
        connections = [TrueBoard(f"board{number}", self) for number in range(boards)]
        self.pool = WorkerPool(connections, lambda text: None, policy, references)

    def build(self, task: TuningTask, candidate: Candidate) -> Path:
        path = self._folder / f"{len(self._built)}.so"
        self._built[path.name] = len(self._built), task, candidate
        return path

    def run(self, programs: Sequence[Program], may_begin: Callable[[], bool]) -> Iterator[Outcome]:
        with self._changed:
            self._order += [one.built.name for one in programs if isinstance(one.built, Path)]
        for outcome in self.pool.run(programs, may_begin):
            yield outcome
            with self._changed:
                self._next += 1
                self._changed.notify_all()

    def answer(self, library: Path) -> Measurement:
        if library.name == "reference.so":
            return measured(1.0)
        with self._changed:
            assert self._changed.wait_for(lambda: self._order.index(library.name) == self._next, 60)
        _, task, candidate = self._built[library.name]
        return measured(truth(task.space, candidate))


class TrueBoard:
    """One board of a `TrueRunner`."""

    def __init__(self, name: str, runner: TrueRunner) -> None:
        self.name = name
        self._runner = runner

    def connect(self) -> None:
        return None

    def measure(self, task: TuningTask, library: Path) -> Measurement:
        return self._runner.answer(library)

    def drop(self) -> str:
        return ""

    def abort(self) -> None:
        return None

    def close(self) -> None:
        return None


def sequence(seed: int, boards: int) -> list[list[Any]]:
    """The records of a tuning in order: batch, kernel, proposer, decisions and seconds."""
    with tempfile.TemporaryDirectory() as name, RecordStore(Path(name) / "r.sqlite") as store:
        runner = TrueRunner(Path(name), boards)
        options = TuneOptions(f"net/{seed}", Budget(trials=_TRIALS, batch=_BATCH), seed=seed)
        with runner.pool:
            tune(tuning_tasks(), profile(), (Gensor(), Skilled("random", 1)), runner, store, options)
        return [
            [
                one.origin.batch,
                one.origin.task,
                one.candidate.proposer,
                [[name, value] for name, value in one.candidate.decisions],
                float(f"{one.measurement.median_s:.9g}"),
            ]
            for one in store
        ]


def main() -> None:
    """Write the recording."""
    recorded = {f"seed {seed}": sequence(seed, 1) for seed in SEEDS}
    lines = ",\n".join(
        f" {json.dumps(name)}: [\n  " + ",\n  ".join(map(json.dumps, rows)) + "\n ]"
        for name, rows in recorded.items()
    )
    RECORDING.write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main()
