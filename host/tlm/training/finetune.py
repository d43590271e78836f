"""Fine-tuning of a board's model on measured records.

A new checkpoint is used only if training makes models that are better than the current one on withheld tasks
(`gate`); each task is withheld once. Part of each batch repeats sentences of pre-training, so that the model
does not forget other boards and tasks.

    python -m host.tlm.training.finetune --job FILE.json       in a separate process; see `write_job`
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from host.errors import EdgeError, TlmError
from host.execution import Engine, LocalEngine
from host.files import write_whole
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model import checkpoints
from host.tlm.model.card import CARD, read_card
from host.tlm.model.network import load_model
from host.tlm.training import gate
from host.tlm.training.example import Example, content_of, example_from
from host.tlm.training.fitting import LEARNED, FinetuneOptions, Fitting, repeated_samples, replay_of
from host.tlm.training.on_host import Advance
from host.tlm.training.record_examples import examples_of, examples_of_records
from host.tlm.training.replay import read_replay

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

CANDIDATE = ".candidate"
# The training on everything.
WHOLE = "whole"
# What nobody measured and is learned, by the name of the training: `fold_name`, `WHOLE`.
Lessons = Mapping[str, Sequence[Example]]


@dataclass(frozen=True)
class Progress:
    """How far it is.

    Attributes:
        done, total: steps of all trainings; the last training is left out if the gate refuses.
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
        steps: of the last training that was done.
        learned: tasks that the new model learns from.
        withheld: of them those that judge, each withheld from one of the models that are judged.
        forgotten: how much the loss on sentences of pre-training rose, a mean over those models.
        why: what the gate found, one line.
        bound, over_chance: see `gate.Verdict`.
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
    bound: float | None = None
    over_chance: float | None = None


def finetune(
    options: FinetuneOptions,
    examples: Sequence[Example],
    report: Callable[[Progress], None],
    engine: Engine | None = None,
    lessons: Lessons | None = None,
) -> FinetuneResult:
    """Judges training on measured programs by tasks that it withholds, then trains on all of them.

    For each fold a model learns without the tasks of that fold and is judged by them: every task judges once.
    Only if the gate accepts, a last model learns everything and is used from then on. The models of the folds
    lie beside it: its successor is judged beside models that have not seen the tasks either.

    Args:
        options: how.
        examples: measured tasks (`examples_of`, `examples_of_records`).
        report: called after each step, or after some of them where another host trains.
        engine: whose hosts train; this process if None.
        lessons: more to learn from, which judges nothing; those of a task that judges a model, or will once
            it is measured, are not learned by it.

    Raises:
        TlmError: too little was measured, a checkpoint, the replay or the state is damaged or of another
            version, or the state is of another training; or no host goes on with it.
    """
    vocabulary = Vocabulary()
    folds = gate.folds(examples)
    replay = read_replay(replay_of(options), vocabulary)
    taught = [[*fold.learned, *_lessons_of(fold, lessons or {})] for fold in folds]
    whole = [*examples, *(lessons or {}).get(WHOLE, ())]
    parts = [options.steps_for(len(one)) for one in taught]
    total = sum(parts) + options.steps_for(len(whole))
    known = [*examples, *(one for own in (lessons or {}).values() for one in own)]
    fitting = Fitting(options, known, replay, engine or LocalEngine(), total)
    done = 0

    def told(advance: Advance) -> None:
        report(Progress(done + advance.step, total, advance.loss))

    present, candidate = options.present or options.start, options.out / CANDIDATE
    shutil.rmtree(candidate, ignore_errors=True)
    repeated = repeated_samples(replay, vocabulary)
    before, after, chance = list[gate.Chosen](), list[gate.Chosen](), list[gate.Chosen]()
    forgotten, steps = list[float](), 0
    for fold, part, own in zip(folds, parts, taught, strict=True):
        name = fold_name(fold.number)
        steps = fitting.trained(name, own, candidate / name, told)
        done += part
        old = load_model(judged_at(present, fold), vocabulary)[0]
        new = load_model(candidate / name, vocabulary)[0]
        before += gate.choices_of(old, vocabulary, fold.withheld)
        after += gate.choices_of(new, vocabulary, fold.withheld)
        chance += gate.by_chance(fold.withheld, vocabulary)
        # The loss on sentences of pre-training.
        losses = [gate.mean_loss(model, vocabulary, repeated) for model in (new, old)]
        forgotten.append(losses[0] - losses[1])
    verdict = gate.compare(before, after, chance)
    if verdict.accepted or options.always:
        steps = fitting.trained(WHOLE, whole, candidate, told)
    used = checkpoints.accept(candidate, options.out) if verdict.accepted else present
    fitting.finish()
    return FinetuneResult(
        accepted=verdict.accepted,
        before=verdict.before,
        after=verdict.after,
        checkpoint=used,
        steps=steps,
        learned=len(examples),
        withheld=len(before),
        forgotten=statistics.fmean(forgotten),
        why=verdict.why,
        bound=verdict.bound,
        over_chance=verdict.over_chance,
    )


def fold_name(number: int) -> str:
    """The folder of a fold's model in a checkpoint, and the name of its training."""
    return f"fold-{number}"


def _lessons_of(fold: gate.Fold, lessons: Lessons) -> list[Example]:
    """The lessons of the training of a fold, without those of tasks that judge it, now or in later runs.

    A model of a fold that has learned a task of its own could not judge once that is measured (`judged_at`).
    """
    own = lessons.get(fold_name(fold.number), ())
    return [one for one in own if gate.fold_of(one) != fold.number]


def judged_at(present: Path, fold: gate.Fold) -> Path:
    """The model in use as it was before it saw the tasks of a fold; itself where there is no such model.

    The shipped model has seen none of them. One that came from another host has no models of folds, and those
    of an earlier version do not say what they have learned, or have learned some of these tasks: it is judged
    with what it has seen, and so is replaced less easily.
    """
    own = present / fold_name(fold.number)
    if not (own / CARD).is_file():
        return present
    learned = read_card(own).training.get(LEARNED)
    if not isinstance(learned, list):
        return present
    return present if {gate.task_of(one) for one in fold.withheld} & set(map(str, learned)) else own


def write_job(
    path: Path, options: FinetuneOptions, examples: Sequence[Example], lessons: Lessons | None = None
) -> None:
    """Writes a job for `python -m host.tlm.training.finetune --job PATH`; `read_result` reads its result."""
    plain = {
        name: str(value) if isinstance(value, Path) else value for name, value in asdict(options).items()
    }
    content = {
        "options": plain,
        "examples": [content_of(example) for example in examples],
        "lessons": {name: [content_of(one) for one in own] for name, own in (lessons or {}).items()},
    }
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
    options, examples, lessons = _read_job(path)
    torch.set_num_threads(options.threads)
    result = finetune(options, examples, report, engine, lessons)
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


def _read_job(path: Path) -> tuple[FinetuneOptions, list[Example], dict[str, list[Example]]]:
    try:
        content = json.loads(path.read_text())
        plain: dict[str, Any] = dict(content["options"])
        for name in ("start", "out", "present", "replay"):
            plain[name] = None if plain[name] is None else Path(plain[name])
        options = FinetuneOptions(**plain)
        lines = list(content["examples"])
        taught = {str(name): list(own) for name, own in content.get("lessons", {}).items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise TlmError(f"{path}: no job of fine-tuning ({error}); write it again") from error

    def read(own: Sequence[Any]) -> list[Example]:
        return [example_from(path, number, line) for number, line in enumerate(own, start=1)]

    return options, read(lines), {name: read(own) for name, own in taught.items()}


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
