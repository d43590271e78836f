"""Programs rewritten node by node, by functions that may refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm_ffi
from tvm import tirx

# The type of a node, or several, and what takes the place of such a node.
Rule = tuple[Any, Callable[[Any], Any]]


def mapped(node: Any, *rules: Rule) -> Any:
    """A program with its nodes replaced, inner ones first.

    `tvm_ffi.structural_map` corrupts memory where an exception leaves a function that it calls (seen with
    0.1.14: the process aborts in about half of the runs). So the first exception is kept, nothing is replaced
    after it, and it is raised when the map has returned.

    Args:
        node: the program.
        rules: types of nodes with what replaces one; a function returns the node itself to keep it.

    Raises:
        Exception: the first that a function raises, an interruption included.
    """
    failures: list[BaseException] = []

    def kept(rewrite: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def visit(found: Any) -> Any:
            if failures:
                return found
            try:
                return rewrite(found)
            except BaseException as error:  # noqa: BLE001 - it is raised below
                failures.append(error)
                return found

        return visit

    made = tvm_ffi.structural_map(node, tuple((kind, kept(rewrite)) for kind, rewrite in rules))
    if failures:
        raise failures[0]
    return made


def computed_once(value: Any, body: Callable[[Any], Any]) -> Any:
    """`body(value)`, in which a value that is no number and no variable has a name."""
    if isinstance(value, tirx.Var | tirx.FloatImm):
        return body(value)
    variable = tirx.Var("once", str(value.ty.dtype))
    return tirx.Let(variable, value, body(variable))
