"""Training data: tasks drawn at random on drawn boards, with the programs that a teacher constructs for them.

An example depends only on the seed and its own number, so that an interrupted file can be continued where it
ends. Each line of the file is one task:

    {"index": 7, "prompt": [...], "programs": [[[token numbers], slower], ...]}    `slower`: estimate / best
    {"index": 8, "left_out": "held out"}
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import tvm

from host.errors import LoweringError, ScheduleError, TlmError
from host.execution import Engine
from host.lowering.emit import emit
from host.lowering.fusion import fuse
from host.lowering.graph import Graph
from host.lowering.lower import optimise
from host.lowering.tasks import make_tasks
from host.model import DeviceProfile, Task
from host.schedules.design import DesignSpace
from host.schedules.families import rule_versions, space_for
from host.schedules.proposer import Proposer
from host.tlm.language.description import describe_board, describe_task
from host.tlm.language.sentence import encode, encode_prompt, sentence_of
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.training.example import Example, content_of, example_from
from research.pretraining.boards import draw_board, training_boards
from research.pretraining.held_out import is_held_out
from research.pretraining.operators import draw_operator
from research.pretraining.ordered_pool import in_order
from targets import Board

SCHEMA = "edgetlm.sentences/2"
# The number of programs of each task.
_PROGRAMS = 6


def lowered_tasks(graph: Graph, board: Board) -> tuple[Task, ...]:
    """The tasks of a graph, lowered as those of a model; in halves where its inputs are."""
    half = _half_of(graph, board)
    graph = optimise(graph, board.hardware, approximate=not half, half=half)
    module, _, _ = emit(graph, fuse(graph), tvm.target.Target(board.tvm_target), half)
    return make_tasks(module)


def _half_of(graph: Graph, board: Board) -> str:
    """The type of halves that the inputs have and the board's programs compute with, "" without one."""
    kinds = {value.dtype for value in graph.inputs}
    if "bfloat16" in kinds:
        return "bfloat16" if board.hardware.bfloat16 is not None else ""
    return "float16" if "float16" in kinds else ""


def draw_space(seed: int, index: int, boards: tuple[Board, ...]) -> tuple[DesignSpace, Board]:
    """The design space of a drawn task on a drawn board.

    Raises:
        ScheduleError: no rule has programs for the drawn task.
    """
    generator = random.Random(f"{seed}/{index}")
    graph = draw_operator(generator)
    board, threads = draw_board(boards, generator)
    try:
        tasks = lowered_tasks(graph, board)
    except LoweringError as error:
        # What a GPU does not have.
        raise ScheduleError(str(error)) from error
    if not tasks:
        raise ScheduleError("nothing is left to compute")
    return space_for(generator.choice(tasks), board.hardware, threads), board


def make_example(
    seed: int, index: int, boards: tuple[Board, ...], teacher: Proposer, vocabulary: Vocabulary
) -> Example:
    """Makes one example. The same arguments give the same example.

    Args:
        seed: seed of everything that is drawn.
        index: number of the example.
        boards: boards to draw from.
        teacher: proposes programs with estimates.
        vocabulary: vocabulary of the sentences.
    """
    try:
        space, board = draw_space(seed, index, boards)
    except ScheduleError:
        return Example(index, left_out="no rule")
    if is_held_out(space.workload):
        return Example(index, left_out="held out")
    profile = DeviceProfile("training", board, board.hardware, space.threads)
    candidates = teacher.propose(space, profile, [], _PROGRAMS, index)
    try:
        space.apply(candidates[0])
    except ScheduleError:
        return Example(index, left_out="does not apply")
    prompt = encode_prompt(describe_board(space.hardware, space.threads), describe_task(space))
    best = min(candidate.estimate_s for candidate in candidates)
    programs = []
    for candidate in candidates:
        sentence = sentence_of(space, {name: int(candidate.value(name)) for name, _ in candidate.decisions})
        tokens = vocabulary.encode(encode(sentence)[len(prompt) :])
        programs.append((tuple(tokens), round(candidate.estimate_s / best, 4)))
    return Example(index, tuple(vocabulary.encode(prompt[:-1])), tuple(programs))


class Dataset:
    """A file of examples that grows.

    Args:
        path: the file; it is created if it does not exist.
        seed: seed of everything that is drawn.
        vocabulary: vocabulary of the sentences.

    Raises:
        TlmError: the file was made with another seed or another version of a rule, or its vocabulary is
            not the beginning of this one.
    """

    def __init__(self, path: Path, seed: int, vocabulary: Vocabulary) -> None:
        self.path = path
        self.seed = seed
        self.vocabulary = vocabulary
        self.examples: list[Example] = []
        # Whether tokens or rules were added since the file was made. It can then be read, but not extended.
        self._outgrown = False
        self._header: dict[str, Any] = {
            "schema": SCHEMA,
            "seed": seed,
            "vocabulary": vocabulary.version,
            "tokens": len(vocabulary),
            "rules": rule_versions(),
        }
        if path.exists():
            self._read()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(self._header) + "\n")

    def _read(self) -> None:
        """Reads the whole lines. A last line that was cut off while it was written is dropped."""
        text = self.path.read_text()
        whole = text[: text.rfind("\n") + 1]
        lines = whole.splitlines()
        header: Any = _parsed(self.path, 1, lines[0]) if lines else self._header
        try:
            version, tokens = str(header["vocabulary"]), int(header["tokens"])
            rules = {**self._header["rules"], **header["rules"]}
            same = {**header, "vocabulary": self.vocabulary.version, "tokens": len(self.vocabulary)}
            same["rules"] = rules
        except (KeyError, TypeError, ValueError) as error:
            raise TlmError(f"{self.path}, line 1 is no header ({error}); remove the file") from error
        if same != self._header:
            raise TlmError(
                f"{self.path}: sentences of another seed or version of a rule; choose another folder"
            )
        self.vocabulary.check_prefix(tokens, version, str(self.path))
        self._outgrown = tokens < len(self.vocabulary) or header["rules"] != rules
        for number, line in enumerate(lines[1:], start=2):
            example = example_from(self.path, number, _parsed(self.path, number, line))
            if example.index != len(self.examples):
                raise TlmError(
                    f"{self.path}, line {number}: example {example.index} is out of order; remove it"
                )
            self.examples.append(example)
        if len(whole) != len(text) or not lines:
            self.path.write_text(whole or json.dumps(self._header) + "\n")

    def grow(
        self, count: int, teacher: Proposer, jobs: int = 1, engine: Engine | None = None
    ) -> Iterator[Example]:
        """Adds examples until there are `count`. Each example is on disk before it is returned.

        Args:
            count: total number of examples.
            teacher: proposes programs with estimates; it must be picklable if `jobs` is greater than 1.
            jobs: number of processes that make examples; the file is the same for any number.
            engine: whose hosts make them; see `in_order`.

        Raises:
            TlmError: tokens or rules were added since the file was made, or one of the processes ended before
                its work was done.
        """
        if self._outgrown:
            raise TlmError(f"{self.path}: there are more tokens or rules since; choose another folder")
        make = partial(
            make_example, self.seed, boards=training_boards(), teacher=teacher, vocabulary=self.vocabulary
        )
        with self.path.open("a") as file:
            for example in in_order(make, range(len(self.examples), count), jobs, engine):
                file.write(json.dumps(content_of(example), separators=(",", ":")) + "\n")
                file.flush()
                self.examples.append(example)
                yield example


def _parsed(path: Path, number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise TlmError(f"{path}, line {number} is damaged ({error}); remove the file") from error
