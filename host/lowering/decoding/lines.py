"""Lines of TVMScript that the functions of cached attention are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

# Positions of a vector of keys.
POSITIONS = 16
LOWEST = "T.float32(-3.4028234663852886e38)"
# What the parts of the positions leave: (parts, rows, heads, size), and (rows, heads, parts) of both others.
SUMS, MAXIMA, TOTALS = "part_sums", "part_maxima", "part_totals"
# Hints of `llvm.prefetch`: for reading, into the second level, as data.
_HINTS = (0, 2, 1)


@dataclass(frozen=True)
class Split:
    """One of several parts of the positions, computed side by side.

    Attributes:
        number: text of its number.
        count: of the parts.
    """

    number: str
    count: int

    def bounds(self, first: str, behind: str) -> tuple[str, str]:
        """Texts of the first block of the part, and of the one behind its last.

        The last parts are shorter, or have none: their bounds can lie behind the last block.

        Args:
            first: text of the first block of all parts.
            behind: text of the one behind the last.
        """
        blocks = f"(({behind} - {first} + {self.count - 1}) // {self.count})"
        return f"({first} + {self.number} * {blocks})", f"({first} + {self.number} * {blocks} + {blocks})"


@dataclass(frozen=True)
class Body:
    """Text of what is computed for a head of keys behind the new keys and values.

    Attributes:
        buffers: that the lines use.
        lines: of the program.
        owned: text of the condition that the position `place` is one of a part; "" where there are no parts.
    """

    buffers: list[str]
    lines: list[str]
    owned: str = ""


@dataclass(frozen=True)
class RowPlace:
    """Where the results of a row go, as texts.

    Attributes:
        values: element `d` of its result, or of its sum of values where there are parts.
        maximum: its highest score.
        total: the sum of its powers.
    """

    values: str
    maximum: str = ""
    total: str = ""


def row_place(token: str, head: str, split: Split | None) -> RowPlace:
    """The place of a row among the results, or among the sums of a part."""
    if split is None:
        return RowPlace(f"output[{token}, {head}, d]")
    own = f"[{token}, {head}, {split.number}]"
    return RowPlace(f"{SUMS}[{split.number}, {token}, {head}, d]", MAXIMA + own, TOTALS + own)


def fetched(address: Any) -> Any:
    """Fetches a line into the cache before it is read."""
    hints = [tirx.const(hint, "int32") for hint in _HINTS]
    return tirx.call_llvm_intrin("void", "llvm.prefetch.p0", address, *hints)


def each(tile: int, statement: str, indent: int = 4) -> list[str]:
    """A statement for every row of a tile and every lane of a vector of positions."""
    lines = [f"for i in T.unroll({tile}):", "    for l in T.vectorized(16):", f"        {statement}"]
    return indented(lines, indent)


def halvings(buffer: str, operation: str, indent: int) -> list[str]:
    """Text that makes one element of the 16 of a row of a buffer, by halves of what is left.

    Args:
        buffer: and the row, as "buffer[row".
        operation: of two texts, with `{0}` and `{1}`.
        indent: of the text.
    """
    lines = []
    for half in (8, 4, 2, 1):
        made = operation.format(f"{buffer}, l]", f"{buffer}, l + {half}]")
        lines += [f"for l in T.vectorized({half}):", f"    {buffer}, l] = {made}"]
    return indented(lines, indent)


def reached_lines(tile: int, before: str, power: str) -> list[str]:
    """Text that makes the highest score of each row of what `largest` has by lanes.

    It goes to `before`, and `grown` gets the weight that earlier sums keep.

    Args:
        tile: rows.
        before: text of the highest score of row `i` so far.
        power: the name of the function of a weight.
    """
    return [
        f"for i in T.unroll({tile}):",
        *halvings("largest[i", "T.max({0}, {1})", 4),
        f"    reached[i] = T.max(largest[i, 0], {before})",
        f"for i in T.{'vectorized' if tile > 1 else 'unroll'}({tile}):",
        f"    grown[i] = {power}({before}, reached[i])",
        f"    {before} = reached[i]",
    ]


def vectors(tile: int, parts: Sequence[tuple[int, int]], statement: str, indent: int) -> list[str]:
    """A statement for every row of a tile and every element `d` of a head, vector by vector."""
    lines = [f"for i in T.unroll({tile}):"]
    for start, lanes in parts:
        lines += [f"    for e in T.vectorized({lanes}):", f"        {_shifted(statement, start)}"]
    return indented(lines, indent)


def indented(lines: Sequence[str], by: int) -> list[str]:
    """Lines further to the right."""
    return [" " * by + line for line in lines]


def _shifted(statement: str, start: int) -> str:
    """The statement with `e` of a vector in place of `d`."""
    return statement.replace(", d]", f", {start} + e]")
