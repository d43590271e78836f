"""The trainer of the loop: fine-tuning in a process of its own, which ends with the one that started it.

python -m host.tuning.finetuning --job FILE.json --nice 15     the other side; see `FinetuneTrainer`
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from host.errors import EdgeError, TlmError
from host.model import DeviceProfile
from host.records import Record
from host.tuning.stages import GENTLE
from host.tuning.trainer import Trained

# Measured programs below which nothing is learned: some have to be withheld.
_FEWEST = 24
# Programs of a task that are learned, the fastest: a step costs as much as it has programs.
_KEEP = 4


@dataclass(frozen=True)
class FinetuneTrainer:
    """Starts fine-tuning of the shipped model on everything that was measured on a board.

    A new checkpoint is used, here and by later deployments, only if it beats the one in use on withheld
    records (`host.tlm.gate`).

    Attributes:
        profile: of the board.
        folder: scratch.
        seed: of the batches.
        threads: of the training process.
        gentle: whether it has to give way to measurements on the same machine.
        steps: batches of one training between two batches of measurements.
        last_steps: of the training that ends a run, for the deployments to come.
        root: folder of fine-tuned checkpoints; None takes the user's.
    """

    profile: DeviceProfile
    folder: Path
    seed: int = 0
    threads: int = 1
    gentle: bool = False
    steps: int = 24
    last_steps: int = 72
    root: Path | None = None

    def start(self, records: Sequence[Record], last: bool) -> FinetuneProcess | None:
        """Begin to train; None while fewer than 24 programs are measured.

        Raises:
            TlmError: the package has no weights, or those in use are damaged.
        """
        from host.tlm.card import read_card
        from host.tlm.checkpoints import model_for, prepare, shipped
        from host.tlm.finetune import FinetuneOptions, examples_of_records, write_job
        from host.tlm.vocabulary import Vocabulary

        examples = examples_of_records(records, Vocabulary())
        if sum(len(example.programs) for example in examples) < _FEWEST:
            return None
        base = shipped()
        options = FinetuneOptions(
            start=base,
            out=prepare(self.profile, read_card(base).weights, self.root),
            present=model_for(self.profile, self.root),
            steps=self.last_steps if last else self.steps,
            seed=self.seed,
            keep=_KEEP,
            threads=self.threads,
        )
        job = self.folder / f"finetune-{len(records)}.json"
        write_job(job, options, examples)
        return FinetuneProcess(job, GENTLE if self.gentle else 0)

    def reserve_s(self, seconds: float) -> float:
        """Seconds that the training that ends a run takes, where one between two batches took `seconds`."""
        return seconds * self.last_steps / self.steps


class FinetuneProcess:
    """A fine-tuning under way.

    Args:
        job: what to do; see `host.tlm.finetune.write_job`.
        nice: by how much its priority is lowered.
    """

    def __init__(self, job: Path, nice: int) -> None:
        self._job = job
        self._begin = time.monotonic()
        self._log = job.with_suffix(".log")
        command = [sys.executable, "-m", "host.tuning.finetuning", "--job", str(job), "--nice", str(nice)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                # Its end tells the process that nobody waits for it any more, however that came about.
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
                # Ctrl-C is the loop's to handle.
                start_new_session=True,
            )

    def result(self) -> Trained:
        """Wait for its end.

        Raises:
            TlmError: it failed or was cancelled.
        """
        from host.gensor.benefit import estimate_seconds
        from host.tlm.card import read_card
        from host.tlm.finetune import read_result
        from host.tlm.proposer import Tlm

        code = self._process.wait()
        self._close()
        if code:
            lines = self._log.read_text(errors="replace").strip().splitlines()
            raise TlmError(lines[-1] if lines else f"fine-tuning ended with code {code}")
        found = read_result(self._job)
        return Trained(
            proposer=Tlm(found.checkpoint, estimate=estimate_seconds) if found.accepted else None,
            digest=read_card(found.checkpoint).weights,
            before=found.before,
            after=found.after,
            seconds=time.monotonic() - self._begin,
        )

    def cancel(self) -> None:
        """End it; more than once is no error."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._close()

    def _close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Does a job at a lower priority; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m host.tuning.finetuning")
    parser.add_argument("--job", type=Path, required=True)
    parser.add_argument("--nice", type=int, default=0)
    options = parser.parse_args(arguments)
    os.nice(options.nice)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    try:
        from host.tlm.finetune import run_job

        run_job(options.job, lambda progress: None)
    except EdgeError as error:
        sys.stderr.write(f"{' '.join(str(error).split())}\n")
        return error.exit_code
    return 0


def _end_with_the_parent() -> None:
    """Whoever started this process holds the other end of its input."""
    while os.read(0, 4096):
        pass
    # At once: a checkpoint is put in use as a whole, and nothing else is left.
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
