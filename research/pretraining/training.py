"""The training loop of pre-training, wherever it runs: it needs PyTorch and no compiler.

A batch depends only on the seed and its own number, and nothing else is random. A run that was interrupted
and continued therefore ends with the same weights as an uninterrupted one, whoever was: the command, or the
host that trains. What was trained comes back as a file.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from host.execution import Engine, HostLost
from host.files import write_whole
from host.options.engine import LOCAL
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model.card import Size
from host.tlm.model.network import new_model
from host.tlm.training import on_host
from host.tlm.training.example import Example
from host.tlm.training.on_host import Advance, Plan
from host.tlm.training.packing import samples_of
from host.tlm.training.trainer import Schedule, Trainer

SENTENCES, STATE = "sentences.jsonl", "training.pt"
# One example in this many is withheld, to measure the loss on tasks that the model has never seen.
WITHHELD_EACH = 20


@dataclass(frozen=True)
class PretrainOptions:
    """How to pre-train.

    Attributes:
        out: folder of data, state and checkpoint.
        steps: total number of batches.
        examples: number of examples to make; one in 20 is withheld from training.
        seed: seed of data, weights and batches.
        resume: continue with what is in the folder.
        batch: number of tasks in one step.
        learning_rate: the largest rate; it rises over `warm_up` steps and falls to zero as a cosine.
        warm_up: number of steps over which the rate rises.
        save_every: number of steps between two saved states.
        size: size of the network.
        jobs: number of processes that make the examples; it changes nothing but the time.
        engine: whose hosts make them in place of these, and train; see `host.execution.open_engine`.
    """

    out: Path
    steps: int = 20000
    examples: int = 20000
    seed: int = 0
    resume: bool = False
    batch: int = 16
    learning_rate: float = 1e-3
    warm_up: int = 100
    save_every: int = 200
    size: Size = field(default_factory=Size)
    jobs: int = 1
    engine: str = LOCAL


def split(examples: Sequence[Example]) -> tuple[list[Example], list[Example]]:
    """The examples to train on, and the withheld ones. Examples that were left out are in neither."""
    used = [example for example in examples if example.programs]
    return (
        [example for example in used if example.index % WITHHELD_EACH],
        [example for example in used if not example.index % WITHHELD_EACH],
    )


def history_of(options: PretrainOptions, trainer: Trainer, examples: Sequence[Example]) -> dict[str, Any]:
    """The facts about the training for the card."""
    return {
        "seed": options.seed,
        "steps": trainer.step,
        "batch": options.batch,
        "learning_rate": options.learning_rate,
        "tasks": sum(bool(example.programs) for example in examples),
        "held_out": sum(example.left_out == "held out" for example in examples),
        "programs": sum(len(example.programs) for example in examples),
        "loss": round(trainer.recent_loss, 4),
        "withheld_loss": round(trainer.withheld_loss, 4),
    }


class Training:
    """The object of the actor that trains; it does nothing before `begin`.

    Args:
        options: how to train.
        trained: examples to train on.
        withheld: examples for the loss on tasks that the model has never seen.
    """

    def __init__(
        self, options: PretrainOptions, trained: Sequence[Example], withheld: Sequence[Example]
    ) -> None:
        self._options = options
        self._trained = trained
        self._withheld = withheld
        self._trainer: Trainer | None = None

    def begin(self, state: bytes) -> Advance:
        """Begin, or go on from a state that is not empty.

        Raises:
            TlmError: the state is damaged, or of another training.
        """
        self._vocabulary = Vocabulary()
        self._best = [samples_of(example, self._vocabulary, 1)[0] for example in self._withheld]
        self._trainer = trainer = trainer_for(self._options, self._vocabulary)
        self._rows = trainer.rows([samples_of(example, self._vocabulary) for example in self._trained])
        if state:
            trainer.restore(state, str(self._options.out))
        return Advance(trainer.step, trainer.recent_loss, trainer.withheld_loss)

    def _batch(self, step: int) -> list[int]:
        """Numbers of the tasks of a step, all of whose programs are learned."""
        generator = random.Random(f"{self._options.seed}/batch/{step}")
        return generator.choices(range(len(self._trained)), k=self._options.batch)

    def advance(self, steps: int) -> Advance:
        """Take some steps, at most up to the next state; none of them gives the state as it is.

        Raises:
            HostLost: it has not begun in this process: the one before it ended.
        """
        trainer, options = self._trainer, self._options
        if trainer is None:
            raise HostLost("the process that trains was started anew")
        state = b"" if steps else trainer.state()
        for _ in range(min(steps, options.steps - trainer.step)):
            trainer.train_on(self._rows.rows.take(self._batch(trainer.step)), self._rows.weights)
            if trainer.step % options.save_every == 0 or trainer.step == options.steps:
                trainer.withheld_loss = trainer.loss_of(self._best, options.batch)
                state = trainer.state()
                break
        return Advance(trainer.step, trainer.recent_loss, trainer.withheld_loss, state)


class StateFile:
    """The state of a training on disk.

    Args:
        path: of the file; with a bound, of files with numbers behind this name.
        most_bytes: of one file; 0 without a bound.
    """

    def __init__(self, path: Path, most_bytes: int = 0) -> None:
        self.path = path
        self._most = most_bytes

    def _paths(self) -> list[Path]:
        if not self._most:
            return [self.path] if self.path.exists() else []
        found = self.path.parent.glob(f"{self.path.name}.*")
        return sorted(found, key=lambda path: int(path.suffix[1:]))

    def read(self) -> bytes:
        """The state; b"" before the first one."""
        return b"".join(path.read_bytes() for path in self._paths())

    def write(self, state: bytes) -> None:
        """Replace the state."""
        if not self._most:
            write_whole(self.path, state)
            return
        starts = range(0, len(state), self._most)
        for number, start in enumerate(starts):
            part = self.path.with_name(f"{self.path.name}.{number}")
            write_whole(part, state[start : start + self._most])
        for path in self._paths()[len(starts) :]:
            path.unlink()


def train_to_the_end(
    engine: Engine,
    options: PretrainOptions,
    trained: Sequence[Example],
    withheld: Sequence[Example],
    state: StateFile,
    report: Callable[[Advance], None],
) -> None:
    """Train on a host of an engine until the file of the state has the last step.

    A training whose host ends goes on from this file, on the next host that can.

    Raises:
        TlmError: the state is damaged or of another training, or no host goes on with it.
    """
    plan = Plan(Training, (options, trained, withheld), options.steps, state.write, state.read())
    on_host.train_to_the_end(engine, plan, report)


def trainer_for(options: PretrainOptions, vocabulary: Vocabulary) -> Trainer:
    """A trainer of a network with random weights."""
    key = {
        "seed": options.seed,
        "batch": options.batch,
        "learning_rate": options.learning_rate,
        "size": asdict(options.size),
    }
    schedule = Schedule(options.steps, options.learning_rate, options.warm_up)
    return Trainer(new_model(vocabulary, options.size, options.seed), vocabulary, schedule, key)
