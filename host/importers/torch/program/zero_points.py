"""What is known of the zero points of a quantised program before it is converted."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from host.importers.torch.program.fold import Weights

# Where a node has the least and the greatest zero point, if they are whole numbers and known.
RANGE = "edgetlm_zero_points"
_NAMES = ("zero_point", "zero_points")
# Operators that leave the numbers of their first argument as they are.
_PASSED_ON = ("getitem", "_to_copy.default", "clone.default", "squeeze.dims", "view.default")


def note_zero_points(program: torch.export.ExportedProgram) -> None:
    """Write the range of its zero points to each node that has some, as `RANGE` of its `meta`.

    Args:
        program: after decompositions, before anything is folded.
    """
    weights: Weights | None = None
    for node in program.graph.nodes:
        argument = _zero_points(node)
        if argument is None:
            continue
        found = None
        if isinstance(argument, int):
            found = (argument, argument)
        elif isinstance(argument, fx.Node):
            weights = weights or Weights(program, {})
            found = _chosen_within(argument) or _known_range(argument, weights)
        if found is not None:
            node.meta[RANGE] = found


def _zero_points(node: fx.Node) -> Any:
    """The argument of an operator that has its zero points; None of others."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return None
    for position, argument in enumerate(node.target._schema.arguments):
        if argument.name in _NAMES:
            return node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
    return None


def _chosen_within(source: fx.Node) -> tuple[int, int] | None:
    """The bounds of zero points that the program chooses while it runs."""
    made, name = source, _name(source)
    while name in _PASSED_ON and made.args and isinstance(made.args[0], fx.Node):
        made = made.args[0]
        name = _name(made)
    if "choose_qparams" not in name:
        return None
    if "per_token" in name:
        return torch.iinfo(torch.int8).min, torch.iinfo(torch.int8).max
    bounds = made.args[1:3]
    return (bounds[0], bounds[1]) if all(isinstance(one, int) for one in bounds) else None


def _name(node: fx.Node) -> str:
    return str(getattr(node.target, "__name__", ""))


def _known_range(source: fx.Node, weights: Weights) -> tuple[int, int] | None:
    if not weights.decide(source):
        return None
    values = weights.value(source)
    if not values.numel() or (values.is_floating_point() and not bool((values == values.round()).all())):
        return None
    return int(values.min()), int(values.max())
