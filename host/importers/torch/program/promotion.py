"""Types of operands written out: torch promotes them inside of an operator, where TVM's frontend does not.

`whole * 0.5`, `whole / whole`, `whole < 0.5` and `whole.exp()` are computed in floats. TVM takes the type of
the tensor, so that 0.5 would be 0. It leaves out the factor of `torch.add(a, b, alpha=2)`, too.
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
        *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "deg2rad", "digamma", "erf"),
        *("erfc", "exp", "exp2", "expm1", "lgamma", "log", "log10", "log1p", "log2", "logit", "rad2deg"),
        *("reciprocal", "rsqrt", "sigmoid", "sin", "sinc", "sinh", "sqrt", "tan", "tanh"),
    )
)
_COMPARISONS = frozenset(("eq", "ge", "gt", "le", "lt", "ne"))


def write_promotions(program: torch.export.ExportedProgram) -> None:
    """Convert operands to the type that an operator computes in, where they have another; write factors out.

    Args:
        program: after decompositions; its graph is changed.
    """
    for node in list(program.graph.nodes):
        _write_factor(program.graph, node)
    for node in list(program.graph.nodes):
        positions = _operands(node)
        wanted = _computed_in(node, positions) if positions else None
        if wanted is None or wanted.is_complex:
            continue
        for position in positions:
            operand = node.args[position]
            if _is_tensor(operand) and operand.meta["val"].dtype != wanted:
                node.update_arg(position, _converted(program.graph, node, operand, wanted))


def _write_factor(graph: fx.Graph, node: fx.Node) -> None:
    """`a + alpha b`, or `b - alpha a` of `rsub`, as a product and a sum or difference."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return
    name = node.target._schema.name.removeprefix("aten::")
    made = node.meta.get("val")
    if name not in ("add", "sub", "rsub") or not isinstance(made, torch.Tensor):
        return
    factor = node.args[2] if len(node.args) > 2 else node.kwargs.get("alpha", 1)
    # A truth value times a number is itself.
    if factor == 1 or (made.dtype is torch.bool and factor):
        return
    place = 0 if name == "rsub" else 1
    operand = node.args[place]
    if isinstance(operand, int | float):
        node.update_arg(place, operand * factor)
    else:
        node.update_arg(place, _scaled(graph, node, operand, factor))
    node.args = node.args[:2]
    node.kwargs = {name: value for name, value in node.kwargs.items() if name != "alpha"}


def _scaled(graph: fx.Graph, node: fx.Node, operand: fx.Node, factor: Any) -> fx.Node:
    """A product in the type of the node that takes it, before this node."""
    wanted = node.meta["val"].dtype
    if operand.meta["val"].dtype != wanted:
        operand = _converted(graph, node, operand, wanted)
    with graph.inserting_before(node):
        made = graph.call_function(torch.ops.aten.mul.Tensor, (operand, factor))
    made.meta = {**node.meta, "val": operand.meta["val"]}
    return made


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
