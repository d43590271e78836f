"""Trains on a machine with a GPU: `python3 -m research.pretraining.kit KIT RESULTS --seconds 200`.

It needs Python 3.11, PyTorch, NumPy and safetensors, and neither a compiler nor a network. The number of
steps is what fits into the time, by a few steps that are timed before; RESULTS/plan.json keeps it. The state
is written about every half minute, in files of at most 15 MB. The same command goes on from it. At the end
RESULTS has a checkpoint, as `sdk tlm pretrain` writes it, and log.jsonl with the losses.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import torch

from host.errors import EdgeError, TlmError
from host.execution import LocalEngine
from host.files import write_whole
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model.card import Card, Size
from host.tlm.model.network import save_model
from host.tlm.training.on_host import Advance
from host.tlm.training.trainer import trained_rules
from research.pretraining.kit.file import KitData, read_kit
from research.pretraining.training import (
    STATE,
    PretrainOptions,
    StateFile,
    Training,
    history_of,
    split,
    train_to_the_end,
    trainer_for,
)

PLAN, LOG = "plan.json", "log.jsonl"
_MOST_BYTES = 15_000_000
_SAVE_S = 25.0
# Steps that are timed, after so many that warm up: a GPU compiles kernels for each length of rows that it has
# not met, at first several in every step. The share of the time that the steps are planned for.
_WARM, _TIMED, _USED = 60, 40, 0.9


class _TimeIsOver(Exception):
    pass


@dataclass(frozen=True)
class Limits:
    """How long a training takes.

    Attributes:
        seconds: of the whole command.
        steps: of the training; 0 for as many as fit.
    """

    seconds: float
    steps: int = 0


def train_kit(kit: Path, options: PretrainOptions, limits: Limits) -> Card:
    """Train on the examples of a kit and write a checkpoint into `options.out`.

    Raises:
        TlmError: the kit is damaged, or the folder has the state of another training.
    """
    begin = time.monotonic()
    vocabulary = Vocabulary()
    data = read_kit(kit, vocabulary)
    trained, withheld = split(data.sentences.examples)
    trained += data.earlier
    if not trained or not withheld:
        raise TlmError(f"{kit}: too few examples to train on")
    options.out.mkdir(parents=True, exist_ok=True)
    options = _planned(options, limits, Training(options, trained, withheld), begin)
    state = StateFile(options.out / STATE, _MOST_BYTES)
    with (options.out / LOG).open("a") as log:

        def told(done: Advance) -> None:
            if done.state or done.step % 50 == 0:
                line = {
                    "step": done.step,
                    "loss": done.loss,
                    "withheld": done.withheld_loss,
                    "seconds": time.monotonic() - begin,
                }
                log.write(json.dumps(line) + "\n")
                log.flush()
            if time.monotonic() - begin > limits.seconds:
                raise _TimeIsOver

        try:
            train_to_the_end(LocalEngine(), options, trained, withheld, state, told)
        except _TimeIsOver:
            sys.stderr.write(
                f"{limits.seconds:.0f} s are over; the same command goes on from the last state\n"
            )
    return _saved(options, state, data, vocabulary)


def _planned(options: PretrainOptions, limits: Limits, trial: Training, begin: float) -> PretrainOptions:
    """The options with the number of steps that fit, or that an earlier command has planned."""
    path = options.out / PLAN
    if path.exists():
        try:
            plan = json.loads(path.read_text())
            return replace(options, steps=int(plan["steps"]), save_every=int(plan["save_every"]))
        except (ValueError, KeyError, TypeError) as error:
            raise TlmError(f"{path} is damaged ({error}); choose another folder") from error
    trial.begin(b"")
    for _ in range(_WARM):
        trial.advance(1)
    ends = [time.monotonic()]
    for _ in range(_TIMED):
        trial.advance(1)
        ends.append(time.monotonic())
    # The median: steps in which the GPU still compiles are few later.
    step_s = statistics.median(end - before for before, end in pairwise(ends))
    left = limits.seconds - (time.monotonic() - begin)
    steps = limits.steps or max(1, int(_USED * left / step_s))
    options = replace(options, steps=steps, save_every=max(1, min(steps, int(_SAVE_S / step_s))))
    plan = {"steps": steps, "save_every": options.save_every, "step_s": step_s, "device": _device()}
    write_whole(path, json.dumps(plan).encode())
    return options


def _device() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"


def _saved(options: PretrainOptions, state: StateFile, data: KitData, vocabulary: Vocabulary) -> Card:
    trainer = trainer_for(options, vocabulary)
    content = state.read()
    if not content:
        raise TlmError(f"{options.out}: the time was over before the first state; give more seconds")
    trainer.restore(content, str(state.path))
    history = history_of(options, trainer, data.sentences.examples) | {"earlier": len(data.earlier)}
    rules = trained_rules(trainer.seen, vocabulary, data.sentences.rules)
    return save_model(trainer.model, options.out, vocabulary, options.size, "", history, rules)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; the exit code."""
    parser = argparse.ArgumentParser(prog="python3 -m research.pretraining.kit", description=__doc__)
    parser.add_argument("kit", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--seconds", type=float, default=200.0)
    parser.add_argument("--steps", type=int, default=0, help="as many as fit into the time without it")
    parser.add_argument("--layers", type=int, default=Size().layers)
    parser.add_argument("--width", type=int, default=Size().width, help="32 a head")
    parser.add_argument("--batch", type=int, default=64, help="tasks of one step")
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    size = Size(layers=given.layers, heads=given.width // 32, width=given.width)
    options = PretrainOptions(
        given.results,
        seed=given.seed,
        batch=given.batch,
        learning_rate=given.learning_rate,
        warm_up=200,
        size=size,
    )
    try:
        card = train_kit(given.kit, options, Limits(given.seconds, given.steps))
    except EdgeError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    training = card.training
    print(f"{given.results}: {training['steps']} steps, withheld loss {training['withheld_loss']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
