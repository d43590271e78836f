"""Folding what does not depend on a torch program's inputs: positions, causal masks and the like.

What is computed of weights stays in the program, where it has a conversion; the compiler folds it. What has
none, as the matrix exponential of an orthogonal weight, is computed here.
"""

from __future__ import annotations

import operator
from collections.abc import Container, Mapping
from typing import Any

import torch
from torch import fx

# A folded constant may have this many elements.
FOLD_ELEMENTS = 1 << 18

_RANDOM = ("rand", "normal", "bernoulli", "multinomial", "dropout", "exponential", "uniform")


def CONSTANT(index: int) -> None:  # noqa: N802 - stands for an operator in a graph
    """Marks a folded value; a converter puts the constant of this number in its place."""
    raise AssertionError(f"constant {index} is not to be run")


def fold_constants(program: torch.export.ExportedProgram, converted: Container[str]) -> list[torch.Tensor]:
    """Replace nodes whose values are known by `CONSTANT(number)`.

    Args:
        program: after decompositions; its graph is changed.
        converted: names of the operators that have a conversion.

    Returns:
        The values, by number.
    """
    graph = program.graph
    known: dict[fx.Node, Any] = _complex_state(program)
    weights = Weights(program, known)
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if all(source in known for source in node.all_input_nodes):
            value = _evaluate(node, known)
        elif node.target.__name__ not in converted and weights.decide(node):
            value = weights.value(node)
        else:
            continue
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


class Weights:
    """What weights alone decide.

    Args:
        program: that has the weights.
        known: values that are known already; more may be added later.
    """

    def __init__(self, program: torch.export.ExportedProgram, known: Mapping[fx.Node, Any]) -> None:
        nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
        self._known = known
        self._values: dict[fx.Node, Any] = {}
        for spec in program.graph_signature.input_specs:
            stored = program.state_dict if spec.target in program.state_dict else program.constants
            value = stored.get(spec.target) if spec.target is not None else None
            if isinstance(value, torch.Tensor):
                self._values[nodes[spec.arg.name]] = value
        self._decided: dict[fx.Node, bool] = dict.fromkeys(self._values, True)
        for node in program.graph.nodes:
            if node not in self._decided:
                fixed = node in known or _is_pure(node)
                self._decided[node] = fixed and all(self._decided[one] for one in node.all_input_nodes)

    def decide(self, node: fx.Node) -> bool:
        """Whether a node has one or several tensors of fixed shape that follow from weights."""
        made = node.meta.get("val")
        tensors = made if isinstance(made, tuple | list) else [made]
        return self._decided[node] and all(
            isinstance(one, torch.Tensor) and all(isinstance(size, int) for size in one.shape)
            for one in tensors
        )

    def value(self, node: fx.Node) -> Any:
        """The value of a node that weights decide."""
        if node in self._known:
            return self._known[node]
        if node not in self._values:
            self._values[node] = _called(node, {one: self.value(one) for one in node.all_input_nodes})
        return self._values[node]


def _is_pure(node: fx.Node) -> bool:
    """Whether a node computes the same of the same inputs at all times, and nothing else."""
    if node.target is operator.getitem:
        return True
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    name = node.target._schema.name
    random = any(part in name for part in _RANDOM)
    return not (random or name.startswith("aten::_assert") or node.target._schema.is_mutable)


def _called(node: fx.Node, values: Mapping[fx.Node, Any]) -> Any:
    arguments, keywords = (fx.node.map_arg(one, values.__getitem__) for one in (node.args, node.kwargs))
    target: Any = node.target
    with torch.no_grad():
        return target(*arguments, **keywords)


def _evaluate(node: fx.Node, known: Mapping[fx.Node, Any]) -> torch.Tensor | None:
    """The value of a node if it is one tensor, not random, and small or there already."""
    expected = node.meta.get("val")
    if not _is_pure(node) or not isinstance(expected, torch.Tensor):
        return None
    if expected.numel() > FOLD_ELEMENTS and node.target is not operator.getitem:
        return None
    value = _called(node, known)
    if not isinstance(value, torch.Tensor) or value.shape != expected.shape or value.dtype != expected.dtype:
        return None
    return value
