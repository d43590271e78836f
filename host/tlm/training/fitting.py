"""One training of a fine-tuning, on some of a board's tasks and on sentences of pre-training."""

from __future__ import annotations

import hashlib
import json
import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from host.execution import Engine, HostLost
from host.files import write_whole
from host.schedules.families import rule_versions
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model import checkpoints
from host.tlm.model.card import Card, Size
from host.tlm.model.network import load_model, new_model, save_model
from host.tlm.training.example import Example, content_of
from host.tlm.training.gate import task_of
from host.tlm.training.on_host import Advance, Plan, train_to_the_end
from host.tlm.training.packing import Sample, samples_of
from host.tlm.training.replay import REPLAY
from host.tlm.training.trainer import Schedule, Trainer, trained_rules

# In the history of a card: digests of the tasks that the model has learned (`gate.task_of`).
LEARNED = "learned"
_WARM_UP = 5
# Fewer batches are hardly more than those over which the learning rate rises.
_LEAST_STEPS = 10
# Sentences of pre-training by which it is seen what is forgotten.
_LOOKED_AT = 64


@dataclass(frozen=True)
class FinetuneOptions:
    """Options of a fine-tuning.

    Attributes:
        start: checkpoint that training starts from.
        out: folder of the device's checkpoints (`checkpoints.tuned_folder`) and of the state.
        present: current checkpoint, with which the new one is compared; None for `start`.
        replay: sentences of pre-training; None for those beside `start`, else the shipped ones.
        steps: batches of each training: one a fold, and one on everything (`finetune`); 0 for as many as its
            tasks ask for (`steps_for`).
        seconds: stop training after so long, all trainings together; 0 for no limit.
        seed: of the batches.
        resume: continue an interrupted training on the same records.
        batch: tasks of one step.
        learning_rate: the largest one.
        replay_share: share of a batch that repeats pre-training.
        keep: programs of a task to learn, the fastest.
        save_every: steps between two states on disk.
        threads: of a process of its own; a caller's threads are left as they are.
        always: train on everything even if the gate refuses, to look at what it refused.
        visits: times that a training without a number of steps shows each task.
        most_steps: batches of such a training at most.
    """

    start: Path
    out: Path
    present: Path | None = None
    replay: Path | None = None
    steps: int = 0
    seconds: float = 0.0
    seed: int = 0
    resume: bool = False
    batch: int = 8
    learning_rate: float = 2e-3
    replay_share: float = 0.25
    keep: int = 8
    save_every: int = 20
    threads: int = 1
    always: bool = False
    visits: int = 24
    most_steps: int = 240

    @property
    def repeated(self) -> int:
        """Tasks of a batch that repeat pre-training, where there are sentences of it."""
        return round(self.batch * self.replay_share)

    def steps_for(self, tasks: int) -> int:
        """Batches of a training on so many tasks.

        A task has to be seen a number of times before its programs are likely, whatever the number of tasks:
        a fixed number of batches teaches many tasks less than few.
        """
        if self.steps:
            return self.steps
        measured = max(1, self.batch - self.repeated)
        return max(_LEAST_STEPS, min(math.ceil(self.visits * tasks / measured), self.most_steps))

    def programs_of_step(self, learned: Sequence[Example], replay: Sequence[Example]) -> float:
        """Programs of a batch on average: a step takes as long as it has programs.

        Args:
            learned: the measured tasks, at least one.
            replay: sentences of pre-training.
        """
        repeated = self.repeated if replay else 0
        kept = statistics.fmean(min(len(one.programs), self.keep) for one in learned)
        again = statistics.fmean(len(one.programs) for one in replay) if replay else 0.0
        return (self.batch - repeated) * kept + repeated * again


class Fitting:
    """The trainings of one fine-tuning.

    Args:
        options: how to train.
        examples: all that was measured; each training learns a part of it.
        replay: sentences of pre-training.
        engine: whose hosts train.
        steps: of all trainings together; they share the time by their steps.
    """

    def __init__(
        self,
        options: FinetuneOptions,
        examples: Sequence[Example],
        replay: Sequence[Example],
        engine: Engine,
        steps: int,
    ) -> None:
        self._options = options
        self._replay = replay
        self._engine = engine
        self._seconds_of_step = options.seconds / steps
        self._vocabulary = Vocabulary()
        text = json.dumps([content_of(example) for example in examples])
        self._records = hashlib.sha256(text.encode()).hexdigest()[:16]
        self._states: list[Path] = []

    def trained(
        self, name: str, learned: Sequence[Example], folder: Path, report: Callable[[Advance], None]
    ) -> int:
        """Train on some of the examples, and write the checkpoint; returns the steps.

        Args:
            name: of the training; its state, if it is interrupted, is kept under this name.
            learned: the examples.
            folder: of the checkpoint.
            report: called after each step, or after some of them where another host trains.

        Raises:
            TlmError: a checkpoint or the state is damaged or of another version or training; or no host
                goes on with it.
        """
        options = replace(self._options, steps=self._options.steps_for(len(learned)))
        model, start = load_model(options.start, self._vocabulary)
        key = self._key(name, start, learned, options.steps)
        trainer = Trainer(model, self._vocabulary, _schedule_of(options), key)
        state = options.out / state_name(name)
        if options.resume and state.exists():
            trainer.restore(state.read_bytes(), state)
        self._states.append(state)

        def keep(content: bytes) -> None:
            options.out.mkdir(parents=True, exist_ok=True)
            write_whole(state, content)

        given = (options, start.size, trainer.key, learned, self._replay)
        seconds = options.steps * self._seconds_of_step
        plan = Plan(Finetuning, given, options.steps, keep, trainer.state(), seconds)
        trainer.restore(train_to_the_end(self._engine, plan, report), state)
        self._save(trainer, start, learned, folder)
        return trainer.step

    def finish(self) -> None:
        """Remove the states: nothing is left to go on with."""
        for state in self._states:
            state.unlink(missing_ok=True)

    def _key(self, name: str, start: Card, learned: Sequence[Example], steps: int) -> dict[str, Any]:
        options = self._options
        return {
            "part": name,
            LEARNED: sorted({task_of(example) for example in learned}),
            "start": start.weights,
            "tokens": start.tokens,
            "records": self._records,
            "seed": options.seed,
            "batch": options.batch,
            "learning_rate": options.learning_rate,
            "replay_share": options.replay_share,
            "keep": options.keep,
            "steps": steps,
        }

    def _save(self, trainer: Trainer, start: Card, learned: Sequence[Example], folder: Path) -> None:
        vocabulary = self._vocabulary
        history = {
            "steps": trainer.step,
            "seed": self._options.seed,
            "start": start.weights,
            "tasks": len(learned),
            LEARNED: sorted({task_of(example) for example in learned}),
            "programs": sum(len(example.programs) for example in learned),
            "loss": round(trainer.recent_loss, 4),
        }
        untrained = tuple(token for token in start.untrained if vocabulary.number(token) not in trainer.seen)
        rules = {**start.rules, **trained_rules(trainer.seen, vocabulary, rule_versions())}
        save_model(trainer.model, folder, vocabulary, start.size, start.root, history, rules, untrained)


def state_name(name: str) -> str:
    """The file name of the state of a training."""
    return f"training-{name}.pt"


class Finetuning:
    """The object of the actor that trains: see `host.tlm.training.on_host.Training`.

    It reads no file: the checkpoint that training starts from is in the first state.

    Args:
        options: how to train.
        size: of the network.
        key: of the states.
        learned: measured tasks to train on.
        replay: sentences of pre-training.
    """

    def __init__(
        self,
        options: FinetuneOptions,
        size: Size,
        key: Mapping[str, Any],
        learned: Sequence[Example],
        replay: Sequence[Example],
    ) -> None:
        self._options = options
        self._size = size
        self._key = key
        self._examples = learned, replay
        self._trainer: Trainer | None = None

    def begin(self, state: bytes) -> Advance:
        """See `Training.begin`."""
        vocabulary = Vocabulary()
        model = new_model(vocabulary, self._size, self._options.seed)
        self._batches = _Batches(self._options, *self._examples, vocabulary)
        self._trainer = trainer = Trainer(model, vocabulary, _schedule_of(self._options), self._key)
        trainer.restore(state, self._options.out / state_name(self._key["part"]))
        return Advance(trainer.step, trainer.recent_loss)

    def advance(self, steps: int) -> Advance:
        """See `Training.advance`."""
        trainer, options = self._trainer, self._options
        if trainer is None:
            raise HostLost("the process that trains was started anew")
        state = b"" if steps else trainer.state()
        for _ in range(min(steps, options.steps - trainer.step)):
            trainer.train(self._batches.of(trainer.step))
            if trainer.step % options.save_every == 0 or trainer.step == options.steps:
                state = trainer.state()
                break
        return Advance(trainer.step, trainer.recent_loss, state=state)


def replay_of(options: FinetuneOptions) -> Path:
    """The file of sentences of pre-training that a fine-tuning repeats."""
    if options.replay is not None:
        return options.replay
    beside = options.start / REPLAY
    return beside if beside.exists() else checkpoints.shipped() / REPLAY


def repeated_samples(replay: Sequence[Example], vocabulary: Vocabulary) -> list[Sample]:
    """The best program of some sentences of pre-training, to see what is forgotten."""
    return [samples_of(one, vocabulary)[0] for one in replay[:_LOOKED_AT]]


def _schedule_of(options: FinetuneOptions) -> Schedule:
    return Schedule(options.steps, options.learning_rate, _WARM_UP)


class _Batches:
    """Batches of measured programs and of sentences of pre-training; number n depends on the seed and n."""

    def __init__(
        self,
        options: FinetuneOptions,
        learned: Sequence[Example],
        replay: Sequence[Example],
        vocabulary: Vocabulary,
    ) -> None:
        self._options = options
        self._measured = [samples_of(one, vocabulary, options.keep) for one in learned]
        self._replay = [samples_of(one, vocabulary) for one in replay]

    def of(self, step: int) -> list[Sample]:
        """The samples of a step."""
        generator = random.Random(f"{self._options.seed}/finetune/{step}")
        repeated = self._options.repeated if self._replay else 0
        chosen = generator.choices(self._measured, k=self._options.batch - repeated)
        if repeated:
            chosen += generator.choices(self._replay, k=repeated)
        return [sample for samples in chosen for sample in samples]
