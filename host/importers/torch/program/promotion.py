"""Types of operands written out: torch promotes them inside of an operator, where TVM's frontend does not.

`whole * 0.5`, `whole / whole`, `whole < 0.5` and `whole.exp()` are computed in floats. TVM takes the type of
the tensor, so that 0.5 would be 0.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

# Operators of two operands that are computed in the type of their result.
_ARITHMETIC = frozenset(
    (
        *("add", "atan2", "div", "floor_divide", "fmod", "hypot", "maximum", "minimum", "mul", "pow"),
        *("remainder", "rsub", "sub"),
    )
)
# Functions of one number whose result is a float, of whole numbers and truth values too.
_FUNCTIONS = frozenset(
    (
        *(
            "acos",
            "acosh",
            "asin",
            "asinh",
            "atan",
            "atanh",
            "cos",
            "cosh",
            "deg2rad",
            "digamma",
            "erf",
            "erfc",
        ),
        *(
            "exp",
            "exp2",
            "expm1",
            "lgamma",
            "log",
            "log10",
            "log1p",
            "log2",
            "logit",
            "rad2deg",
            "reciprocal",
        ),
        *("rsqrt", "sigmoid", "sin", "sinc", "sinh", "sqrt", "tan", "tanh"),
    )
)
_COMPARISONS = frozenset(("eq", "ge", "gt", "le", "lt", "ne"))


def write_promotions(program: torch.export.ExportedProgram) -> None:
    """Convert operands to the type that an operator computes in, where they have another.

    Args:
        program: after decompositions; its graph is changed.
    """
    for node in list(program.graph.nodes):
        positions = _operands(node)
        wanted = _computed_in(node, positions) if positions else None
        if wanted is None or wanted.is_complex:
            continue
        for position in positions:
            operand = node.args[position]
            if _is_tensor(operand) and operand.meta["val"].dtype != wanted:
                node.update_arg(position, _converted(program.graph, node, operand, wanted))


def _operands(node: fx.Node) -> tuple[int, ...]:
    """Which arguments of an operator are promoted together."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return ()
    name = node.target._schema.name.removeprefix("aten::")
    if name == "where" and len(node.args) == 3:
        return (1, 2)
    if name in _FUNCTIONS:
        return (0,)
    return (0, 1) if name in _ARITHMETIC | _COMPARISONS and len(node.args) >= 2 else ()


def _computed_in(node: fx.Node, positions: tuple[int, ...]) -> torch.dtype | None:
    """The type that an operator computes in."""
    made = node.meta.get("val")
    if not isinstance(made, torch.Tensor) or not any(_is_tensor(node.args[one]) for one in positions):
        return None
    target: Any = node.target
    if target._schema.name.removeprefix("aten::") not in _COMPARISONS:
        dtype: torch.dtype = made.dtype
        return dtype
    operands = [one.meta.get("val") if isinstance(one, fx.Node) else one for one in node.args[:2]]
    known = all(isinstance(one, torch.Tensor | int | float) for one in operands)
    return torch.result_type(*operands) if known else None


def _is_tensor(argument: Any) -> bool:
    return isinstance(argument, fx.Node) and isinstance(argument.meta.get("val"), torch.Tensor)


def _converted(graph: fx.Graph, node: fx.Node, operand: fx.Node, wanted: torch.dtype) -> fx.Node:
    """The operand in another type, before the node, as a part of its layer."""
    with graph.inserting_before(node):
        made = graph.call_function(torch.ops.aten._to_copy.default, (operand,), {"dtype": wanted})
    made.meta = {**node.meta, "val": operand.meta["val"].to(wanted)}
    return made
