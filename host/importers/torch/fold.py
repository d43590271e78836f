"""Folding what does not depend on a torch program's inputs: positions, causal masks and the like."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

# A folded constant may have this many elements.
FOLD_ELEMENTS = 1 << 18

_RANDOM = ("rand", "normal", "bernoulli", "multinomial", "dropout", "exponential", "uniform")


def CONSTANT(index: int) -> None:  # noqa: N802 - stands for an operator in a graph
    """Marks a folded value; a converter puts the constant of this number in its place."""
    raise AssertionError(f"constant {index} is not to be run")


def fold_constants(program: torch.export.ExportedProgram) -> list[torch.Tensor]:
    """Replace nodes whose values are known by `CONSTANT(number)`.

    Args:
        program: after decompositions; its graph is changed.

    Returns:
        The values, by number.
    """
    graph = program.graph
    known = _complex_state(program)
    for node in graph.nodes:
        if node.op == "call_function" and all(source in known for source in node.all_input_nodes):
            value = _evaluate(node, known)
            if value is not None:
                known[node] = value
    constants: list[torch.Tensor] = []
    first = next(node for node in graph.nodes if node.op != "placeholder")
    for node, value in known.items():
        if all(user in known for user in node.users):
            continue
        with graph.inserting_before(first if node.op == "placeholder" else node):
            marker = graph.call_function(CONSTANT, (len(constants),))
        marker.meta = dict(node.meta)
        node.replace_all_uses_with(marker)
        constants.append(value.detach().resolve_conj().resolve_neg().contiguous())
    for node in reversed(list(known)):
        graph.erase_node(node)
    return constants


def _complex_state(program: torch.export.ExportedProgram) -> dict[fx.Node, torch.Tensor]:
    """Complex weights, buffers and constants, which leave the program: relax has no inputs of their type."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    signature, found = program.graph_signature, {}
    for spec in list(signature.input_specs):
        stored = program.state_dict if spec.target in program.state_dict else program.constants
        value = stored.get(spec.target) if spec.target is not None else None
        if isinstance(value, torch.Tensor) and value.is_complex():
            found[nodes[spec.arg.name]] = value
            signature.input_specs.remove(spec)
            del stored[spec.target]
    return found


def _evaluate(node: fx.Node, known: dict[fx.Node, torch.Tensor]) -> torch.Tensor | None:
    """The value of a node if it is one tensor, small and not random."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return None
    name = node.target._schema.name
    expected = node.meta.get("val")
    if (
        any(part in name for part in _RANDOM)
        or name.startswith("aten::_assert")
        or node.target._schema.is_mutable
    ):
        return None
    if not isinstance(expected, torch.Tensor) or expected.numel() > FOLD_ELEMENTS:
        return None
    arguments: Any = torch.fx.node.map_arg(node.args, lambda source: known[source])
    keywords: Any = torch.fx.node.map_arg(node.kwargs, lambda source: known[source])
    with torch.no_grad():
        value = node.target(*arguments, **keywords)
    if not isinstance(value, torch.Tensor) or value.shape != expected.shape or value.dtype != expected.dtype:
        return None
    return value
