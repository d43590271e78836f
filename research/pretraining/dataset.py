"""Training data: tasks drawn at random on drawn boards, with the programs that a teacher constructs for them.

An example depends only on the seed and its own number, so that an interrupted file can be continued where it
ends; `sentences` describes the file.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

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
from host.tlm.training.example import Example, content_of
from research.pretraining.boards import draw_board, training_boards
from research.pretraining.held_out import is_held_out
from research.pretraining.operators import draw_operator
from research.pretraining.ordered_pool import in_order
from research.pretraining.sentences import header_of, read_sentences
from targets import Board

# The number of programs of each task.
_PROGRAMS = 12
# Most drawn tasks are of a few rules. One example in three is the rarest of six drawn tasks, by this order of
# rules from the most frequent; those that are not named are the rarest.
_RARE_EACH, _RARE_OF = 3, 6
_FREQUENT = (
    "tiled",
    "cuda_tiled",
    "injective",
    "rowwise",
    "dot",
    "cuda_rowwise",
    "cuda_injective",
    "quantised",
)


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
    if index % _RARE_EACH:
        return _drawn(random.Random(f"{seed}/{index}"), boards)
    found = []
    for number in range(_RARE_OF):
        try:
            found.append(_drawn(random.Random(f"{seed}/{index}/{number}"), boards))
        except ScheduleError as error:
            failure = error
    if not found:
        raise failure
    return min(found, key=lambda one: _frequency(one[0].rule.name))


def _frequency(rule: str) -> int:
    """How often tasks have a rule: 0 for the rarest."""
    return len(_FREQUENT) - _FREQUENT.index(rule) if rule in _FREQUENT else 0


def _drawn(generator: random.Random, boards: tuple[Board, ...]) -> tuple[DesignSpace, Board]:
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
        if path.exists():
            self._read()
        else:
            self._begin()

    def _read(self) -> None:
        """Reads the whole lines. A last line that was cut off while it was written is dropped."""
        text = self.path.read_text()
        if "\n" not in text:
            self._begin()
            return
        found = read_sentences(text, self.path, self.vocabulary)
        present = rule_versions()
        if found.seed != self.seed or {**present, **found.rules} != present:
            raise TlmError(
                f"{self.path}: sentences of another seed or version of a rule; choose another folder"
            )
        self._outgrown = found.tokens < len(self.vocabulary) or found.rules != present
        self.examples = list(found.examples)
        if found.whole != text:
            self.path.write_text(found.whole)

    def _begin(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(header_of(self.seed, self.vocabulary, rule_versions()))

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
        for example in in_order(make, range(len(self.examples), count), jobs, engine):
            self.add(example)
            yield example

    def add(self, example: Example) -> None:
        """Adds the next example; it is on disk when this returns."""
        with self.path.open("a") as file:
            file.write(json.dumps(content_of(example), separators=(",", ":")) + "\n")
        self.examples.append(example)
