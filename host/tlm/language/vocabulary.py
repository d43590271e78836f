"""All tokens in a fixed order. A change makes another version, and models of other versions are refused."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import product

from host.errors import TlmError
from host.tlm.language import numbers

PAD, BOARD, TASK, DECIDE, END = "<pad>", "<board>", "<task>", "<decide>", "<end>"
CPU, GPU = "cpu", "gpu"
# Quantities on a scale of half octaves: level n stands for 2^(n / 2) units, 0 for less than one unit.
LEVELS = 96
# How good a program is beside the best known one for its task; see `example.quality_of`.
QUALITIES = 4
# How an access moves with an axis: not at all, to the neighbour in memory, by one or by several steps of
# another dimension, in groups (packed weights), or in a way that depends on data.
MOVES = "-cuwg?"
WIDTHS = (0, 1, 2, 4, 8)
STAGE_KINDS = ("contraction", "reduction", "padding", "injective")

_CPU_RULES, _CUDA_RULES = "tiled rowwise injective winograd dot", "cuda_tiled cuda_rowwise cuda_injective"
RULE_NAMES = tuple(f"{_CPU_RULES} {_CUDA_RULES}".split())
_CPU_DECISIONS = (
    "vectors rows rows2 panel block block2 unroll window pad parallel partials inline strip tiles"
)
_DECISIONS = (
    f"{_CPU_DECISIONS} depth span intrinsic cols tx ty tz vx vy stage steps halo fetch threads vector"
)
DECISION_NAMES = tuple(_DECISIONS.split())


def level_token(level: int) -> str:
    """The token of a quantity."""
    return f"q{level}"


def quality_token(quality: int) -> str:
    """The token of how good a program is."""
    return f"quality:{quality}"


def rule_token(rule: str) -> str:
    """The token of a rule."""
    return f"rule:{rule}"


def decision_token(name: str) -> str:
    """The token before the value of a decision."""
    return f"{name}="


def spell_decisions(decisions: Iterable[tuple[str, int]]) -> list[str]:
    """The tokens of what is decided, in the order of the design space, with the end.

    Raises:
        TlmError: a number that cannot be said.
    """
    tokens = []
    for name, value in decisions:
        tokens += [decision_token(name), *numbers.spell(value)]
    return [*tokens, END]


def axis_token(reduce: bool, moves: str) -> str:
    """The token before the extent of an axis.

    Args:
        reduce: whether values are combined along it.
        moves: how the first two reads and the write move with it, one letter of `MOVES` each.
    """
    return f"{'reduce' if reduce else 'spatial'}:{moves}"


def stage_token(kind: str, expensive: bool, anchor: bool) -> str:
    """The token of a stage."""
    return f"{'anchor' if anchor else 'stage'}:{kind}{':expensive' if expensive else ''}"


def width_token(width: int) -> str:
    """The token of the bytes of one element; 0 for no such buffer."""
    return f"bytes:{width}"


def _all_tokens() -> tuple[str, ...]:
    flags = (False, True)
    return (
        *(PAD, BOARD, TASK, DECIDE, END, CPU, GPU),
        *numbers.TOKENS,
        *map(level_token, range(LEVELS)),
        *map(quality_token, range(QUALITIES)),
        *map(rule_token, RULE_NAMES),
        *map(decision_token, DECISION_NAMES),
        *map(width_token, WIDTHS),
        *(stage_token(*parts) for parts in product(STAGE_KINDS, flags, flags)),
        *(axis_token(reduce, "".join(moves)) for reduce in flags for moves in product(MOVES, repeat=3)),
    )


class Vocabulary:
    """Tokens and their numbers.

    Attributes:
        tokens: in the order of their numbers.
        version: changes with the tokens.
    """

    def __init__(self) -> None:
        self.tokens = _all_tokens()
        self.version = hashlib.sha256("\n".join(self.tokens).encode()).hexdigest()[:12]
        self._numbers = {token: number for number, token in enumerate(self.tokens)}

    def __len__(self) -> int:
        return len(self.tokens)

    def number(self, token: str) -> int:
        """The number of a token.

        Raises:
            TlmError: there is no such token.
        """
        found = self._numbers.get(token)
        if found is None:
            raise TlmError(f"token {token!r} is not in the vocabulary {self.version} of the language model")
        return found

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """The numbers of tokens.

        Raises:
            TlmError: one is not in the vocabulary.
        """
        return [self.number(token) for token in tokens]

    def decode(self, numbers_: Sequence[int]) -> list[str]:
        """The tokens of numbers.

        Raises:
            TlmError: a number has no token.
        """
        if any(not 0 <= number < len(self.tokens) for number in numbers_):
            raise TlmError(f"a token number is outside of the vocabulary of {len(self.tokens)}")
        return [self.tokens[number] for number in numbers_]
