"""The tokens of the language, in the order of a committed list to which new ones are appended.

A line of `tokens.txt` is a token and its class. The number of a line is the number of the token and of its
row in the weights. Weights and data stay usable when the list grows at its end: a new row starts as the mean
of its class (`host.tlm.model.network`). A token that changes or moves makes them unusable.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from importlib import resources

from device_agent.contract.text import printable
from host.errors import TlmError
from host.tlm.language import numbers

FILE = "tokens.txt"
# A token and its class, in the order of their numbers.
_ENTRIES = tuple(
    (token, kind)
    for token, kind in map(str.split, (resources.files(__package__) / FILE).read_text().splitlines())
)

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
# Rules and decisions that have a token.
RULE_NAMES = tuple(token.removeprefix("rule:") for token, kind in _ENTRIES if kind == "rule")
DECISION_NAMES = tuple(token.removesuffix("=") for token, kind in _ENTRIES if kind.startswith("decision:"))


def level_token(level: int) -> str:
    """The token of a quantity."""
    return f"q{level}"


def quality_token(quality: int) -> str:
    """The token of the quality of a program."""
    return f"quality:{quality}"


def rule_token(rule: str) -> str:
    """The token of a rule."""
    return f"rule:{rule}"


def decision_token(name: str) -> str:
    """The token before the value of a decision."""
    return f"{name}="


def spell_decisions(decisions: Iterable[tuple[str, int]]) -> list[str]:
    """The tokens of the decisions, in the order of the design space, with the end token.

    Raises:
        TlmError: a number is too large for the language.
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


class Vocabulary:
    """Tokens, their numbers and their classes.

    Attributes:
        tokens: in the order of their numbers.
        classes: of the tokens; those of one class mean similar things.
        version: changes with the tokens.
    """

    def __init__(self) -> None:
        self.tokens = tuple(token for token, _ in _ENTRIES)
        self.classes = tuple(kind for _, kind in _ENTRIES)
        self.version = self._version_of(len(self.tokens))
        self._numbers = {token: number for number, token in enumerate(self.tokens)}

    def __len__(self) -> int:
        return len(self.tokens)

    def _version_of(self, count: int) -> str:
        return hashlib.sha256("\n".join(self.tokens[:count]).encode()).hexdigest()[:12]

    def check_prefix(self, count: int, version: str, what: str) -> None:
        """Check that a vocabulary of which weights or data were made is the beginning of this one.

        Args:
            count: tokens of that vocabulary.
            version: of that vocabulary.
            what: the file or folder, for the message.

        Raises:
            TlmError: it has other tokens, or more.
        """
        if count > len(self):
            raise TlmError(
                f"{what}: made with a vocabulary of {count} tokens, this one has {len(self)}; "
                "install a newer version of the package"
            )
        if version != self._version_of(count):
            raise TlmError(
                f"{what}: made with vocabulary {printable(version, 12)}, the first {count} tokens here are "
                f"{self._version_of(count)}: tokens changed that may only be appended; train the model again"
            )

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
