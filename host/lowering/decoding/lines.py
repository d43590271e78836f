"""Lines of TVMScript that the functions of cached attention are made of."""

from __future__ import annotations

from typing import Any

from tvm import tirx

# Positions of a vector of keys.
POSITIONS = 16
LOWEST = "T.float32(-3.4028234663852886e38)"


# Hints of `llvm.prefetch`: for reading, into the second level, as data.
_HINTS = (0, 2, 1)


def fetched(address: Any) -> Any:
    """Fetches a line into the cache before it is read."""
    hints = [tirx.const(hint, "int32") for hint in _HINTS]
    return tirx.call_llvm_intrin("void", "llvm.prefetch.p0", address, *hints)


def each(tile: int, statement: str, indent: int = 4) -> list[str]:
    """A statement for every row of a tile and every lane of a vector of positions."""
    lines = [f"for i in T.unroll({tile}):", "    for l in T.vectorized(16):", f"        {statement}"]
    return [" " * indent + line for line in lines]


def vectors(tile: int, parts: list[tuple[int, int]], statement: str, indent: int) -> list[str]:
    """A statement for every row of a tile and every element `d` of a head, vector by vector."""
    lines = [f"for i in T.unroll({tile}):"]
    for start, lanes in parts:
        lines += [f"    for e in T.vectorized({lanes}):", f"        {_shifted(statement, start)}"]
    return [" " * indent + line for line in lines]


def _shifted(statement: str, start: int) -> str:
    """The statement with `e` of a vector in place of `d`."""
    return statement.replace(", d]", f", {start} + e]")
