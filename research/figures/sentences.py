"""Figures of the language model on the held-out networks, without measuring.

    python -m research.figures.sentences MODELS [--networks NAMES] [--boards NAMES] [--checkpoint FOLDER]

MODELS is the folder of ONNX files that `python -m research.models.export` writes. Without a checkpoint the
lengths of sentences only. Boards with a GPU are named NAME-gpu.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from host.errors import ScheduleError
from host.gensor import Gensor
from host.importers import load_here as load
from host.lowering import lower
from host.model import DeviceProfile
from host.schedules import DesignSpace, space_for
from host.statistics import geometric_mean
from host.tlm.language.sentence import encode, sentence_of
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model.decoding import generate
from host.tlm.model.network import load_model
from host.tlm.ranking import Ranking, ScoredProgram, ranked
from research.pretraining.boards import board_of
from research.pretraining.list_held_out import NETWORKS
from targets import Board

BOARDS = "x86_64-v4,raspberry_pi_4,spacemit_k1,jetson_orin_nano-gpu"
_PROGRAMS = 32


def spaces_of(
    models: Path, networks: Sequence[str], boards: Sequence[Board]
) -> Iterator[tuple[str, Board, DesignSpace]]:
    """Every task of the networks that has a design space, each once a board."""
    for network in networks:
        model = load(models / f"{network}.onnx", golden_cases=1)
        for board in boards:
            for task in lower(model, board).tasks:
                try:
                    yield network, board, space_for(task, board.hardware, 1)
                except ScheduleError:
                    continue


def _length(space: DesignSpace) -> int | None:
    try:
        return len(encode(sentence_of(space, space.sample(random.Random(0), attempts=20000))))
    except ScheduleError:
        return None


def _applies(space: DesignSpace, values: dict[str, int]) -> bool:
    try:
        space.apply(space.candidate(values, "tlm"))
    except ScheduleError:
        return False
    return True


class Comparison:
    """Estimates of the model's and of the constructor's programs, and whether the model's apply."""

    def __init__(self, checkpoint: Path) -> None:
        self._vocabulary = Vocabulary()
        self._model, _ = load_model(checkpoint, self._vocabulary)
        self.first: list[float] = []
        self.ranked: list[float] = []
        self.best: list[float] = []
        self.random: list[float] = []
        self.seconds: list[float] = []
        self.applied = self.written = 0

    def add(self, board: Board, space: DesignSpace) -> None:
        """Let the model write programs for one task, and compare them with Gensor's."""
        profile = DeviceProfile("figures", board, board.hardware, space.threads)
        [constructed] = Gensor().propose(space, profile, [], 1, 0)
        reference = constructed.estimate_s
        if not _applies(space, {name: int(constructed.value(name)) for name, _ in constructed.decisions}):
            return
        begin = time.process_time()
        written = generate(self._model, self._vocabulary, space, _PROGRAMS, seed=0)
        self.seconds.append(time.process_time() - begin)
        names = [decision.name for decision in space.decisions]
        programs = [dict(zip(names, one.values, strict=True)) for one in written]
        likeliest = max(range(len(written)), key=lambda i: written[i].log_probability)
        estimates = [space.estimate_s(values) for values in programs]
        self.first.append(reference / estimates[likeliest])
        self.best.append(reference / min(estimates))
        order = ranked(
            [
                ScoredProgram(one.values, one.log_probability, estimate)
                for one, estimate in zip(written, estimates, strict=True)
            ],
            Ranking(),
            1,
        )
        self.ranked.append(reference / order[0].estimate_s)
        drawn = space.sample(random.Random(0), attempts=20000)
        self.random.append(reference / space.estimate_s(drawn))
        for values in programs[:4]:
            self.written += 1
            self.applied += space.legal(values) and _applies(space, values)

    def lines(self) -> list[str]:
        """The figures over all tasks, one line of text each."""
        return [
            f"tasks {len(self.first)}",
            f"estimated speed beside Gensor's: likeliest {_mean(self.first)}, first as ranked "
            f"{_mean(self.ranked)}, best of {_PROGRAMS} {_mean(self.best)}, one random program "
            f"{_mean(self.random)} (geometric means)",
            f"processor seconds for {_PROGRAMS} programs: median {statistics.median(self.seconds):.2f}, "
            f"most {max(self.seconds):.2f}",
            f"applied {self.applied} of {self.written}",
        ]


def _mean(ratios: Sequence[float]) -> str:
    return f"{geometric_mean(ratios):.3f}"


def main() -> None:
    """Let the language model write programs for the tasks of networks, and print how good they are."""
    parser = argparse.ArgumentParser()
    parser.add_argument("models", type=Path)
    parser.add_argument("--networks", default=",".join(NETWORKS.values()))
    parser.add_argument("--boards", default=BOARDS)
    parser.add_argument("--checkpoint", type=Path)
    arguments = parser.parse_args()
    boards = [
        board_of(name.removesuffix("-gpu"), name.endswith("-gpu")) for name in arguments.boards.split(",")
    ]
    comparison = Comparison(arguments.checkpoint) if arguments.checkpoint else None
    lengths = []
    for _, board, space in spaces_of(arguments.models, arguments.networks.split(","), boards):
        lengths.append(_length(space))
        if comparison is not None and lengths[-1] is not None:
            comparison.add(board, space)
    known = [length for length in lengths if length is not None]
    print(f"sentences {len(known)}, tokens: median {statistics.median(known):g}, most {max(known)}")
    for line in comparison.lines() if comparison is not None else []:
        print(line)


if __name__ == "__main__":
    main()
