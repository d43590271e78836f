"""The tensor language: board, task and decisions as one sentence, and back without loss.

    <board> cpu q0 q8 ... <task> rule:tiled bytes:4 bytes:4 bytes:4 spatial:-ug 2^6 ... anchor:contraction q46
    q30 stage:injective q33 q15 <decide> quality:0 vectors= 2^1 rows= 2^1 3^1 ... <end>

The idea of a sentence with context and decisions is TLM's (OSDI'24); the language itself is this project's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from host.errors import TlmError
from host.schedules.design import DesignSpace
from host.tlm.language import numbers
from host.tlm.language import vocabulary as vocab
from host.tlm.language.description import (
    AxisDescription,
    BoardDescription,
    StageDescription,
    TaskDescription,
    describe_board,
    describe_task,
    figure_count,
)

_STAGES = {
    vocab.stage_token(kind, expensive, anchor): (kind, expensive, anchor)
    for kind in vocab.STAGE_KINDS
    for expensive in (False, True)
    for anchor in (False, True)
}


@dataclass(frozen=True)
class Sentence:
    """The content of a sentence.

    Attributes:
        board: the processor.
        task: the task.
        quality: how good the program is, 0 to 3, 0 the best.
        decisions: names and values in the order of the design space.
    """

    board: BoardDescription
    task: TaskDescription
    quality: int
    decisions: tuple[tuple[str, int], ...]


def sentence_of(space: DesignSpace, values: Mapping[str, int], quality: int = 0) -> Sentence:
    """The sentence of a program of a design space."""
    decisions = tuple((decision.name, values[decision.name]) for decision in space.decisions)
    board = describe_board(space.hardware, space.threads)
    return Sentence(board, describe_task(space), quality, decisions)


def encode(sentence: Sentence) -> list[str]:
    """The tokens of a sentence.

    Raises:
        TlmError: the language has no token for a number, a rule or a decision.
    """
    known = encode_prompt(sentence.board, sentence.task, sentence.quality)
    return [*known, *vocab.spell_decisions(sentence.decisions)]


def encode_prompt(board: BoardDescription, task: TaskDescription, quality: int = 0) -> list[str]:
    """The tokens before the first decision."""
    tokens = [vocab.BOARD, board.kind, *map(vocab.level_token, board.figures)]
    for size, bandwidth in board.memory:
        tokens += [vocab.level_token(size), vocab.level_token(bandwidth)]
    tokens += [vocab.TASK, vocab.rule_token(task.rule), *map(vocab.width_token, task.widths)]
    for axis in task.axes:
        tokens += [vocab.axis_token(axis.reduce, axis.moves), *numbers.spell(axis.extent)]
    for stage in task.stages:
        tokens.append(vocab.stage_token(stage.kind, stage.expensive, stage.anchor))
        tokens += [vocab.level_token(stage.points), vocab.level_token(stage.reads)]
    return [*tokens, vocab.DECIDE, vocab.quality_token(quality)]


def decode(tokens: Sequence[str]) -> Sentence:
    """Decode the tokens of a sentence.

    Raises:
        TlmError: it is not a sentence of the language; the message names the token.
    """
    reader = _Reader(tokens)
    board = _read_board(reader)
    task = _read_task(reader)
    reader.expect(vocab.DECIDE)
    quality = _after(reader.take(), "quality:", reader)
    decisions = []
    while reader.peek() != vocab.END:
        name = reader.take()
        if not name.endswith("=") or name[:-1] not in vocab.DECISION_NAMES:
            raise reader.error("the name of a decision", name)
        decisions.append((name[:-1], reader.number()))
    reader.expect(vocab.END)
    if reader.position != len(tokens):
        raise reader.error("the end", reader.peek())
    return Sentence(board, task, int(quality), tuple(decisions))


def _read_board(reader: _Reader) -> BoardDescription:
    reader.expect(vocab.BOARD)
    kind = reader.take()
    if kind not in (vocab.CPU, vocab.GPU):
        raise reader.error("cpu or gpu", kind)
    figures = tuple(reader.level() for _ in range(figure_count(kind)))
    memory = []
    while reader.peek() != vocab.TASK:
        memory.append((reader.level(), reader.level()))
    return BoardDescription(kind, figures, tuple(memory))


def _read_task(reader: _Reader) -> TaskDescription:
    reader.expect(vocab.TASK)
    rule = _after(reader.take(), "rule:", reader)
    first, second, write = (int(_after(reader.take(), "bytes:", reader)) for _ in range(3))
    axes = []
    while reader.peek().startswith(("spatial:", "reduce:")):
        side, moves = reader.take().split(":")
        axes.append(AxisDescription(reader.number(), side == "reduce", moves))
    stages = []
    while reader.peek() in _STAGES:
        stages.append(StageDescription(*_STAGES[reader.take()], reader.level(), reader.level()))
    return TaskDescription(rule, (first, second, write), tuple(axes), tuple(stages))


def _after(token: str, prefix: str, reader: _Reader) -> str:
    if not token.startswith(prefix):
        raise reader.error(f"{prefix}...", token)
    return token.removeprefix(prefix)


class _Reader:
    """Reads the tokens of a sentence from the first to the last."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens = tokens
        self.position = 0

    def peek(self) -> str:
        """The next token; "" behind the last."""
        return self._tokens[self.position] if self.position < len(self._tokens) else ""

    def take(self) -> str:
        """Read the next token; "" behind the last."""
        token = self.peek()
        self.position += 1
        return token

    def expect(self, token: str) -> None:
        """Read a token that must be the next one."""
        found = self.take()
        if found != token:
            raise self.error(token, found)

    def level(self) -> int:
        """Read a quantity's token; returns its level on the logarithmic scale.

        Raises:
            TlmError: the next token is none.
        """
        token = self.take()
        if not token.startswith("q") or not token[1:].isdigit():
            raise self.error("a quantity", token)
        return int(token[1:])

    def number(self) -> int:
        """Read the tokens of a number."""
        value, self.position = numbers.read(self._tokens, self.position)
        return value

    def error(self, wanted: str, found: str) -> TlmError:
        """The error of an unexpected token."""
        return TlmError(
            f"sentence, token {self.position - 1}: {wanted} was expected, not {found or 'the end'}"
        )
