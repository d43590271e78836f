"""What fine-tuning changes on a board whose truth the estimates miss; nothing is measured.

    python -m research.figures.finetuning CHECKPOINT REPLAY [--tasks N] [--unseen N] [--steps N]

The board is simulated: its times are the estimates for another processor than the model gets (smaller
caches, slower memory, longer latency), times a preference for values of each decision drawn once for the
board, with 3% of noise. On some tasks the model's, Gensor's and random programs are "measured"; then each
kind of fine-tuning is asked for programs of tasks without a single record, and of tasks of another board.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from host.errors import ScheduleError
from host.gensor import Gensor
from host.model import DeviceProfile, Energy, Measurement
from host.records import Record, RecordOrigin
from host.schedules import DesignSpace, space_for
from host.tlm.language.description import describe_board, describe_task
from host.tlm.language.sentence import encode_prompt
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model.decoding import generate
from host.tlm.model.network import load_model
from host.tlm.training.example import Example
from host.tlm.training.finetune import (
    CANDIDATE,
    FinetuneOptions,
    FinetuneResult,
    examples_of_records,
    finetune,
)
from research.pretraining.boards import board_of
from research.pretraining.dataset import lowered_tasks
from research.pretraining.operators import draw_operator

BOARD, OTHER = "x86_64-v3", "raspberry_pi_4"
# Spread of the times of one program, as a logarithm.
NOISE = 0.03
VOCABULARY = Vocabulary()
Truth = Callable[[DesignSpace, dict[str, int]], float]


def truth_of(seed: int, spread: float = 0.4) -> Truth:
    """Times of a board that is not what it is said to be, without noise.

    Args:
        seed: of what the board prefers.
        spread: standard deviation of the preference between the values of a decision, in logarithms.
    """

    def seconds(space: DesignSpace, values: dict[str, int]) -> float:
        hardware = space.hardware
        levels = tuple(
            replace(
                level,
                size_bytes=level.size_bytes // 2,
                bandwidth_bytes_per_s=level.bandwidth_bytes_per_s / (1.0 + 0.5 * depth),
            )
            for depth, level in enumerate(hardware.levels)
        )
        other = replace(hardware, levels=levels, fma_latency_cycles=2 * hardware.fma_latency_cycles)
        found = replace(space, hardware=other).estimate_s(values)
        for decision in space.decisions:
            preference = random.Random(f"{seed}/{decision.name}").gauss(0.0, spread)
            place = decision.choices.index(values[decision.name]) / max(1, len(decision.choices) - 1)
            found *= math.exp(preference * (place - 0.5))
        return found

    return seconds


@dataclass(frozen=True)
class Case:
    """A task with what is known of its best time on the simulated board or by the estimate."""

    space: DesignSpace
    best: float


def tasks_of(board: str, seed: int, count: int) -> list[DesignSpace]:
    """Tasks of one board and one thread with something to decide."""
    generator = random.Random(f"{board}/{seed}")
    found: list[DesignSpace] = []
    while len(found) < count:
        for task in lowered_tasks(draw_operator(generator), board_of(board)):
            try:
                space = space_for(task, board_of(board).hardware, 1)
                space.sample(generator, attempts=2000)
            except ScheduleError:
                continue  # no rule has programs for it
            if math.prod(len(decision.choices) for decision in space.decisions) >= 20:
                found.append(space)
    return found[:count]


def candidates(checkpoint: Path, space: DesignSpace, seed: int, each: int) -> list[dict[str, int]]:
    """Programs of the model, of Gensor and at random, as a first round of tuning measures them."""
    model, _ = load_model(checkpoint, VOCABULARY)
    names = [decision.name for decision in space.decisions]
    written = [
        dict(zip(names, one.values, strict=True)) for one in generate(model, VOCABULARY, space, each, seed)
    ]
    profile = DeviceProfile("simulated", board_of(BOARD), space.hardware, space.threads)
    built = Gensor().propose(space, profile, [], each, seed)
    drawn = [space.sample(random.Random(seed + turn), attempts=20000) for turn in range(each // 2)]
    return [*written, *({name: int(one.value(name)) for name, _ in one.decisions} for one in built), *drawn]


def records_of(
    checkpoint: Path, tasks: Sequence[DesignSpace], truth: Truth, each: int, first: int
) -> list[Record]:
    """Records of tasks, with their sentences."""
    found = []
    noise = random.Random(f"{first}/noise")
    for number, space in enumerate(tasks, start=first):
        sentence = encode_prompt(describe_board(space.hardware, space.threads), describe_task(space))
        for values in candidates(checkpoint, space, number, each):
            seconds = truth(space, values) * noise.lognormvariate(0.0, NOISE)
            candidate = space.candidate(values, "tlm")
            measurement = Measurement((seconds,), Energy("unavailable", None, None, ""), {}, {}, 1)
            profile = {"board": "simulated"}
            found.append(
                Record(candidate, profile, measurement, origin=RecordOrigin(sentence=tuple(sentence)))
            )
    return found


def speeds(checkpoint: Path, cases: Sequence[Case], truth: Truth) -> tuple[float, float]:
    """Speed of the likeliest program and of the best of ten, beside the best known; geometric means."""
    model, _ = load_model(checkpoint, VOCABULARY)
    first, ten = [], []
    for case in cases:
        names = [decision.name for decision in case.space.decisions]
        written = generate(model, VOCABULARY, case.space, 16, seed=7)
        ranked = sorted({one.values: one.log_probability for one in written}.items(), key=lambda one: -one[1])
        times = [truth(case.space, dict(zip(names, values, strict=True))) for values, _ in ranked[:10]]
        first.append(case.best / times[0])
        ten.append(case.best / min(times))
    return statistics.geometric_mean(first), statistics.geometric_mean(ten)


def cases_of(checkpoint: Path, tasks: Sequence[DesignSpace], truth: Truth) -> list[Case]:
    """Tasks with the best time of many candidates."""
    return [
        Case(space, min(truth(space, values) for values in candidates(checkpoint, space, 1000 + number, 16)))
        for number, space in enumerate(tasks)
    ]


def shuffled(examples: Sequence[Example], seed: int) -> list[Example]:
    """The same programs with times that belong to others of the task."""
    generator = random.Random(seed)
    found = []
    for example in examples:
        times = [slower for _, slower in example.programs]
        generator.shuffle(times)
        programs = zip((tokens for tokens, _ in example.programs), times, strict=True)
        found.append(replace(example, programs=tuple(sorted(programs, key=lambda one: one[1]))))
    return found


class Comparison:
    """Tunings of one checkpoint on one simulated board.

    Args:
        arguments: of the command line.
        seed: of board, tasks and batches.
        folder: scratch.
    """

    def __init__(self, arguments: argparse.Namespace, seed: int, folder: Path) -> None:
        self._arguments, self._seed, self._folder = arguments, seed, folder
        self._base: Path = arguments.checkpoint
        self._truth = truth_of(seed)
        half = arguments.tasks // 2
        tasks = tasks_of(BOARD, seed, 2 * half + arguments.unseen)
        self._rounds = (tasks[:half], tasks[half : 2 * half])
        self._unseen = cases_of(self._base, tasks[2 * half :], self._truth)
        self._others = cases_of(self._base, tasks_of(OTHER, seed, arguments.unseen), DesignSpace.estimate_s)
        self._number = 0

    def run(self) -> None:
        """Prints a line for each model: before, after pre-training alone, after one round and after two."""
        self._show("before", self._base, "")
        one = records_of(self._base, self._rounds[0], self._truth, self._arguments.each, 0)
        alone, text = self._tuned(self._base, self._base, one, 1.0)
        self._show("sentences of pre-training alone", alone, text)
        first, text = self._tuned(self._base, self._base, one)
        self._show("one round", first, text)
        self._tuned_wrongly(one)
        each, done = self._arguments.each, len(self._rounds[0])
        two = [*one, *records_of(first, self._rounds[1], self._truth, each, done)]
        for name, start in (("the shipped", self._base), ("the last", first)):
            last, text = self._tuned(start, first, two)
            self._show(f"two rounds, the second from {name}", last, text)

    def _tuned(
        self, start: Path, present: Path, records: Sequence[Record], replayed: float = 0.5
    ) -> tuple[Path, str]:
        begin = time.process_time()
        examples = examples_of_records(records, VOCABULARY)
        result = self._finetune(start, present, examples, replayed)
        spent = time.process_time() - begin
        text = (
            f"gate {result.before:.3f} -> {result.after:.3f} {'accepted' if result.accepted else 'refused'}, "
            f"replay loss {result.forgotten:+.3f}, {spent:.0f} s"
        )
        # What was refused is shown too: the gate is judged here as well.
        return self._folder / str(self._number) / CANDIDATE, text

    def _tuned_wrongly(self, records: Sequence[Record]) -> None:
        accepted = 0
        for turn in range(self._arguments.wrong):
            examples = shuffled(examples_of_records(records, VOCABULARY), turn)
            accepted += self._finetune(self._base, self._base, examples).accepted
        print(f"  wrong times: accepted {accepted} of {self._arguments.wrong}", flush=True)

    def _finetune(
        self, start: Path, present: Path, examples: Sequence[Example], replayed: float = 0.5
    ) -> FinetuneResult:
        self._number += 1
        options = FinetuneOptions(
            start=start,
            out=self._folder / str(self._number),
            present=present,
            replay=self._arguments.replay,
            steps=self._arguments.steps,
            seed=self._seed,
            batch=self._arguments.batch,
            replay_share=replayed,
            always=True,
        )
        return finetune(options, examples, lambda progress: None)

    def _show(self, name: str, checkpoint: Path, text: str) -> None:
        first, ten = speeds(checkpoint, self._unseen, self._truth)
        others, others_ten = speeds(checkpoint, self._others, DesignSpace.estimate_s)
        print(f"  {name}: {first:.3f} {ten:.3f}, {OTHER} {others:.3f} {others_ten:.3f}; {text}", flush=True)


def main() -> None:
    """Tune the language model on the simulated board and print what it gains."""
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("replay", type=Path)
    parser.add_argument("--tasks", type=int, default=48)
    parser.add_argument("--unseen", type=int, default=16)
    parser.add_argument("--each", type=int, default=8)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--wrong", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for seed in range(arguments.seeds):
        print(f"board {seed}: speed beside the best known, first program and best of ten", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            Comparison(arguments, seed, Path(folder)).run()


if __name__ == "__main__":
    main()
