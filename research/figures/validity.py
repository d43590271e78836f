"""How many of the programs generated first are valid, on every target, as JSON; nothing is drawn again.

    python -m research.figures.validity [--tasks 50] [--programs 32] [--built 2] [--checkpoint FOLDER]
                                      [--targets x86,aarch64,riscv64,cuda] [--seed 9] [--json FILE]

Tasks are those of `research.pretraining.operators` on the boards of a target; a task counts whenever a rule
matches it.
"parsed": the sentence is read back as what was decided; "applied": legal, and the schedule is made; "built":
so many programs of each task go through what comes after, on a CPU all passes before machine code, on a GPU
its compiler, within the shared memory and registers that there are ("spilled": where a thread's registers
do not hold all values). Without a checkpoint the weights are random, and sure of nonsense; with one, the
time of proposing so many different programs with their estimates is printed too ("proposed_processor_s").
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import tvm

from host.build import compile_cuda
from host.build.kernel import lower_function
from host.errors import EdgeError
from host.model import DeviceProfile
from host.schedules import DesignSpace, scheduled_function
from host.tlm.language.sentence import decode, encode, sentence_of
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model.card import Size
from host.tlm.model.decoding import generate
from host.tlm.model.network import load_model, new_model
from host.tlm.proposer import Tlm
from research.pretraining.boards import training_boards
from research.pretraining.dataset import draw_space
from targets import Board

TARGETS = ("x86", "aarch64", "riscv64", "cuda")


def boards_of(target: str) -> tuple[Board, ...]:
    """All declared boards of a target."""
    if target == "cuda":
        return tuple(board for board in training_boards() if board.hardware.gpu is not None)
    return tuple(
        board
        for board in training_boards()
        if board.hardware.gpu is None and board.architecture.startswith(target)
    )


class Validity:
    """Counts of one target.

    Args:
        model: writes the programs.
        vocabulary: of the model.
        programs: of each task.
        built: programs of each task that are built.
        proposer: timed too, for as many programs that differ; None for no such time.
    """

    def __init__(
        self, model: Any, vocabulary: Vocabulary, programs: int, built: int, proposer: Tlm | None
    ) -> None:
        self._proposer = proposer
        self.proposed: list[float] = []
        self._model, self._vocabulary = model, vocabulary
        self._programs, self._built = programs, built
        self.counts: Counter[str] = Counter()
        self.seconds: list[float] = []
        self.failures: list[str] = []

    def add(self, space: DesignSpace, board: Board, seed: int) -> None:
        """Let the model write programs for one task, and count those that parse, apply and build."""
        begin = time.process_time()
        written = generate(self._model, self._vocabulary, space, self._programs, seed)
        self.seconds.append(time.process_time() - begin)
        self.counts["tasks"] += 1
        if self._proposer is not None:
            profile = DeviceProfile("validity", board, space.hardware, space.threads)
            begin = time.process_time()
            self._proposer.propose(space, profile, [], self._programs, seed)
            self.proposed.append(time.process_time() - begin)
        distinct = Counter(one.values for one in written)
        for number, (values, times) in enumerate(distinct.items()):
            decisions = {d.name: value for d, value in zip(space.decisions, values, strict=True)}
            sentence = sentence_of(space, decisions)
            self.counts["written"] += times
            self.counts["parsed"] += times * (decode(encode(sentence)) == sentence)
            try:
                function = scheduled_function(space.apply(space.candidate(decisions, "tlm")))
                self.counts["applied"] += times
            except EdgeError as error:
                self._failed(space, board, decisions, error)
                continue
            if number < self._built:
                self.counts["to build"] += 1
                try:
                    self.counts["spilled"] += build(function, board)
                    self.counts["built"] += 1
                except (EdgeError, RuntimeError, ValueError, TypeError) as error:
                    self._failed(space, board, decisions, error)

    def _failed(self, space: DesignSpace, board: Board, decisions: dict[str, int], error: Exception) -> None:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        self.failures.append(f"{board.name}, {space.task.name} {decisions}: {lines[-1][:200]}")

    def figures(self) -> dict[str, Any]:
        """The shares of programs that parse, apply and build, and the processor time in seconds."""
        counts = self.counts
        return {
            "tasks": counts["tasks"],
            "programs": counts["written"],
            "parsed": counts["parsed"] / max(1, counts["written"]),
            "applied": counts["applied"] / max(1, counts["written"]),
            "built": f"{counts['built']} of {counts['to build']}",
            "spilled": counts["spilled"],
            "processor_s": _spread(self.seconds),
            "proposed_processor_s": _spread(self.proposed),
            "failures": self.failures,
        }


def _spread(seconds: Sequence[float]) -> dict[str, float]:
    if not seconds:
        return {}
    return {"median": round(statistics.median(seconds), 3), "most": round(max(seconds), 3)}


def build(function: tvm.tirx.PrimFunc, board: Board) -> bool:
    """What comes after the schedule; whether registers of a GPU were not enough.

    Raises:
        RuntimeError: the program is not within the limits of the GPU, or a pass refuses it.
    """
    target = tvm.target.Target(board.tvm_target)
    gpu = board.hardware.gpu
    if gpu is None:
        lower_function(function, "kernel", target)
        return False
    resources = compile_cuda(function, "kernel", target).resources
    for used in resources:
        if used.shared_bytes > gpu.shared_per_block or used.registers > gpu.registers_per_thread:
            raise RuntimeError(f"it takes {used}")
    return any(used.spills for used in resources)


def main(arguments: Sequence[str] | None = None) -> None:
    """Let the language model write programs for drawn tasks, and print how many can be built."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tasks", type=int, default=50)
    parser.add_argument("--programs", type=int, default=32)
    parser.add_argument("--built", type=int, default=2)
    parser.add_argument("--seed", type=int, default=9)
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    vocabulary = Vocabulary()
    if chosen.checkpoint is not None:
        model, _ = load_model(chosen.checkpoint, vocabulary)
    else:
        model = new_model(vocabulary, Size(), seed=chosen.seed).eval()
        with torch.no_grad():
            model.transformer.wte.weight.mul_(20.0)
    proposer = (
        Tlm(chosen.checkpoint, estimate=DesignSpace.estimate_s) if chosen.checkpoint is not None else None
    )
    found = {}
    for target in chosen.targets.split(","):
        validity, index, boards = (
            Validity(model, vocabulary, chosen.programs, chosen.built, proposer),
            0,
            boards_of(target),
        )
        while validity.counts["tasks"] < chosen.tasks:
            index += 1
            try:
                space, board = draw_space(chosen.seed, index, boards)
            except EdgeError:
                continue  # no rule has programs for it
            validity.add(space, board, index)
        found[target] = validity.figures()
    text = json.dumps(found, indent=1)
    if chosen.json is not None:
        chosen.json.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
