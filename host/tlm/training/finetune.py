"""Fine-tuning of a board's model on measured records.

A new checkpoint is used only if it is better than the current one on withheld records (`gate`). Half of each
batch repeats sentences of pre-training, so that the model does not forget other boards and tasks.

    python -m host.tlm.training.finetune --job FILE.json       in a separate process; see `write_job`
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from host.errors import EdgeError, TlmError
from host.execution import Engine, HostLost, LocalEngine
from host.files import write_whole
from host.schedules.families import rule_versions
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model import checkpoints
from host.tlm.model.card import Card, Size
from host.tlm.model.network import load_model, new_model, save_model
from host.tlm.training import gate
from host.tlm.training.example import Example, content_of, example_from
from host.tlm.training.on_host import Advance, Plan, train_to_the_end
from host.tlm.training.packing import Sample, samples_of
from host.tlm.training.record_examples import examples_of, examples_of_records
from host.tlm.training.replay import REPLAY, read_replay
from host.tlm.training.trainer import Schedule, Trainer, trained_rules

__all__ = [
    "Example",
    "FinetuneOptions",
    "FinetuneResult",
    "Progress",
    "examples_of",
    "examples_of_records",
    "finetune",
    "read_result",
    "write_job",
]

STATE, CANDIDATE = "training.pt", ".candidate"
_WARM_UP = 5


@dataclass(frozen=True)
class FinetuneOptions:
    """Options of a fine-tuning.

    Attributes:
        start: checkpoint that training starts from.
        out: folder of the device's checkpoints (`checkpoints.tuned_folder`) and of the state.
        present: current checkpoint, with which the new one is compared; None for `start`.
        replay: sentences of pre-training; None for those beside `start`, else the shipped ones.
        steps: batches in all.
        seconds: stop training after so long; 0 for no limit.
        seed: of the batches.
        resume: continue an interrupted training on the same records.
        batch: tasks of one step.
        learning_rate: the largest one.
        replay_share: share of a batch that repeats pre-training.
        keep: programs of a task to learn, the fastest.
        save_every: steps between two states on disk.
        threads: of a process of its own; a caller's threads are left as they are.
    """

    start: Path
    out: Path
    present: Path | None = None
    replay: Path | None = None
    steps: int = 100
    seconds: float = 0.0
    seed: int = 0
    resume: bool = False
    batch: int = 8
    learning_rate: float = 1e-3
    replay_share: float = 0.5
    keep: int = 8
    save_every: int = 20
    threads: int = 1


@dataclass(frozen=True)
class Progress:
    """How far it is.

    Attributes:
        done, total: steps.
        loss: running mean, natural logarithm.
    """

    done: int
    total: int
    loss: float


@dataclass(frozen=True)
class FinetuneResult:
    """The result of a fine-tuning.

    Attributes:
        accepted: whether the new checkpoint is in use from now on.
        before, after: error on withheld records of the model in use and of the new one; see `gate.Verdict`.
        checkpoint: the one to use: the new one, or the one in use before.
        steps: done.
        learned, withheld: tasks.
        forgotten: how much the loss on sentences of pre-training rose.
        why: what the gate found, one line.
    """

    accepted: bool
    before: float
    after: float
    checkpoint: Path
    steps: int
    learned: int
    withheld: int
    forgotten: float
    why: str = ""


def finetune(
    options: FinetuneOptions,
    examples: Sequence[Example],
    report: Callable[[Progress], None],
    engine: Engine | None = None,
) -> FinetuneResult:
    """Trains on measured programs, and puts the new checkpoint in use if it is better.

    Args:
        options: how.
        examples: measured tasks (`examples_of`, `examples_of_records`).
        report: called after each step, or after some of them where another host trains.
        engine: whose hosts train; this process if None.

    Raises:
        TlmError: too little was measured, a checkpoint, the replay or the state is damaged or of another
            version, or the state is of another training; or no host goes on with it.
    """
    vocabulary = Vocabulary()
    learned, withheld = gate.split(examples)
    training, start = _training_for(options, examples, vocabulary)
    replay = read_replay(_replay_of(options), vocabulary)
    state = options.out / STATE
    if options.resume and state.exists():
        training.restore(state.read_bytes(), state)
    given = (options, start.size, training.key, learned, replay)

    def keep(content: bytes) -> None:
        options.out.mkdir(parents=True, exist_ok=True)
        write_whole(state, content)

    def told(done: Advance) -> None:
        report(Progress(done.step, options.steps, done.loss))

    plan = Plan(Finetuning, given, options.steps, keep, training.state(), options.seconds)
    training.restore(train_to_the_end(engine or LocalEngine(), plan, told), state)
    repeated = _Batches(options, learned, replay, vocabulary).repeated
    result = _judged(options, training, start, vocabulary, (learned, withheld), repeated)
    state.unlink(missing_ok=True)
    return result


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
        trainer.restore(state, self._options.out / STATE)
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


def _schedule_of(options: FinetuneOptions) -> Schedule:
    return Schedule(options.steps, options.learning_rate, _WARM_UP)


def _replay_of(options: FinetuneOptions) -> Path:
    if options.replay is not None:
        return options.replay
    beside = options.start / REPLAY
    return beside if beside.exists() else checkpoints.shipped() / REPLAY


def _training_for(
    options: FinetuneOptions, examples: Sequence[Example], vocabulary: Vocabulary
) -> tuple[Trainer, Card]:
    model, card = load_model(options.start, vocabulary)
    text = json.dumps([content_of(example) for example in examples])
    key = {
        "start": card.weights,
        "tokens": card.tokens,
        "records": hashlib.sha256(text.encode()).hexdigest()[:16],
        "seed": options.seed,
        "batch": options.batch,
        "learning_rate": options.learning_rate,
        "steps": options.steps,
    }
    return Trainer(model, vocabulary, _schedule_of(options), key), card


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
        # The best program of each, to see what is forgotten.
        self.repeated = [samples[0] for samples in self._replay[:64]]

    def of(self, step: int) -> list[Sample]:
        """The samples of a step."""
        generator = random.Random(f"{self._options.seed}/finetune/{step}")
        repeated = round(self._options.batch * self._options.replay_share) if self._replay else 0
        chosen = generator.choices(self._measured, k=self._options.batch - repeated)
        if repeated:
            chosen += generator.choices(self._replay, k=repeated)
        return [sample for samples in chosen for sample in samples]


def _judged(
    options: FinetuneOptions,
    training: Trainer,
    start: Card,
    vocabulary: Vocabulary,
    parts: tuple[list[Example], list[Example]],
    repeated: Sequence[Sample],
) -> FinetuneResult:
    """Saves the new checkpoint, compares it as it was saved, and puts it in use if it is better."""
    learned, withheld = parts
    present = options.present or options.start
    history = {
        "steps": training.step,
        "seed": options.seed,
        "start": start.weights,
        "tasks": len(learned),
        "programs": sum(len(example.programs) for example in learned),
        "loss": round(training.recent_loss, 4),
    }
    candidate = options.out / CANDIDATE
    untrained = tuple(token for token in start.untrained if vocabulary.number(token) not in training.seen)
    rules = {**start.rules, **trained_rules(training.seen, vocabulary, rule_versions())}
    save_model(training.model, candidate, vocabulary, start.size, start.root, history, rules, untrained)
    old, new = load_model(present, vocabulary)[0], load_model(candidate, vocabulary)[0]
    verdict = gate.compare(
        gate.choices_of(old, vocabulary, withheld), gate.choices_of(new, vocabulary, withheld)
    )
    used = checkpoints.accept(candidate, options.out) if verdict.accepted else present
    return FinetuneResult(
        accepted=verdict.accepted,
        before=verdict.before,
        after=verdict.after,
        checkpoint=used,
        steps=training.step,
        learned=len(learned),
        withheld=len(withheld),
        forgotten=gate.mean_loss(new, vocabulary, repeated) - gate.mean_loss(old, vocabulary, repeated),
        why=verdict.why,
    )


def write_job(path: Path, options: FinetuneOptions, examples: Sequence[Example]) -> None:
    """Writes a job for `python -m host.tlm.training.finetune --job PATH`; `read_result` reads its result."""
    plain = {
        name: str(value) if isinstance(value, Path) else value for name, value in asdict(options).items()
    }
    content = {"options": plain, "examples": [content_of(example) for example in examples]}
    write_whole(path, json.dumps(content).encode())


def run_job(path: Path, report: Callable[[Progress], None], engine: Engine | None = None) -> FinetuneResult:
    """Does a job and writes its result beside it.

    Args:
        path: of the job.
        report: see `finetune`.
        engine: see `finetune`.

    Raises:
        TlmError: the job is damaged, or as `finetune`.
    """
    options, examples = _read_job(path)
    torch.set_num_threads(options.threads)
    result = finetune(options, examples, report, engine)
    content = {**asdict(result), "checkpoint": str(result.checkpoint)}
    write_whole(_result_of(path), json.dumps(content).encode())
    return result


def read_result(path: Path) -> FinetuneResult:
    """The result of a job.

    Raises:
        TlmError: it has none, or a damaged one.
    """
    try:
        content = json.loads(_result_of(path).read_text())
        return FinetuneResult(**{**content, "checkpoint": Path(content["checkpoint"])})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TlmError(
            f"{_result_of(path)}: no result of fine-tuning ({error}); run the job again"
        ) from error


def _read_job(path: Path) -> tuple[FinetuneOptions, list[Example]]:
    try:
        content = json.loads(path.read_text())
        plain: dict[str, Any] = dict(content["options"])
        for name in ("start", "out", "present", "replay"):
            plain[name] = None if plain[name] is None else Path(plain[name])
        options = FinetuneOptions(**plain)
        lines = list(content["examples"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TlmError(f"{path}: no job of fine-tuning ({error}); write it again") from error
    return options, [example_from(path, number, line) for number, line in enumerate(lines, start=1)]


def _result_of(path: Path) -> Path:
    return path.with_name(f"{path.stem}.result.json")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a job; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m host.tlm.training.finetune")
    parser.add_argument("--job", type=Path, required=True)
    job: Path = parser.parse_args(arguments).job
    try:
        run_job(job, lambda progress: None)
    except EdgeError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
