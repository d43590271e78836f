"""Conditions that say nothing to TVM's simplifier.

TVM takes the condition of a choice for a fact: within `select(i < 10, table[min(i, 9)], x)` it leaves out the
bound of the index, although both sides of a selection are computed. And it takes numbers for ordered: of
`not a < b` it makes `b <= a`, which is another thing where an operand is NaN. What `opaque` gives is to TVM a
number of one bit; LLVM sees through it.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx


def opaque(condition: Any) -> Any:
    """A truth value that the simplifier neither turns around nor takes for a fact."""
    return tirx.bitwise_and(condition, tirx.const(True, "bool"))
