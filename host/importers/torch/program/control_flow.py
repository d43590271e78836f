"""Control flow of torch programs without control flow: both branches and a choice, or loops written out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import torch
from torch import fx

from device_agent.contract.limits import LIMITS
from host.errors import ImportFailed

# As for ONNX: a loop that is longer, or of more operators in all, is not written out.
MAX_STEPS = 256
MAX_NODES = 20_000


def write_out(module: fx.GraphModule) -> None:
    """Replace `cond`, `map` and `scan` by the operators inside of them.

    Args:
        module: of a program after decompositions; its graph is changed.

    Raises:
        ImportFailed: a loop is too long, or a graph with what is written out too large.
    """
    graph = module.graph
    for node in list(graph.nodes):
        expand = _EXPANSIONS.get(_name(node))
        if expand is None:
            continue
        with graph.inserting_before(node):
            results = expand(module, node)
        for user in list(node.users):
            user.replace_all_uses_with(results[user.args[1]])
            graph.erase_node(user)
        bodies = [one for one in node.args if isinstance(one, fx.Node) and one.op == "get_attr"]
        graph.erase_node(node)
        for body in bodies:
            if not body.users:
                graph.erase_node(body)
        if len(graph.nodes) > LIMITS.model.nodes:
            name, most = _name(node), LIMITS.model.nodes
            raise ImportFailed(f"operator {name}: with what is written out, it has over {most} nodes", name)


def _name(node: fx.Node) -> str:
    return str(getattr(node.target, "__name__", "")) if node.op == "call_function" else ""


def _body(module: fx.GraphModule, reference: Any) -> fx.GraphModule:
    """A subgraph without control flow of its own."""
    body: fx.GraphModule = getattr(module, reference.target)
    write_out(body)
    return body


def _copied(module: fx.GraphModule, body: fx.GraphModule, operands: Sequence[Any]) -> list[Any]:
    """The results of a subgraph whose operators are copied in front of the node that calls it."""
    values: dict[fx.Node, Any] = {}
    given = iter(operands)
    for node in body.graph.nodes:
        if node.op == "placeholder":
            values[node] = next(given)
        elif node.op == "output":
            return list(fx.node.map_arg(node.args[0], values.__getitem__))
        elif node.op == "get_attr":
            # Nodes are erased, so that their number alone may come again.
            numbers = count(len(module.graph.nodes))
            name = next(one for one in map("inner_{}".format, numbers) if not hasattr(module, one))
            setattr(module, name, getattr(body, node.target))
            values[node] = module.graph.get_attr(name)
        else:
            values[node] = module.graph.node_copy(node, values.__getitem__)
    raise ImportFailed("a subgraph has no results")


def _chosen(module: fx.GraphModule, node: fx.Node) -> list[Any]:
    """Both branches, whose results have equal shapes, and for each result a choice."""
    condition, first, second, operands = node.args
    condition = _without_axes(module, node, condition)
    branches = [_copied(module, _body(module, one), operands) for one in (first, second)]
    made = []
    for number, pair in enumerate(zip(*branches, strict=True)):
        chosen = module.graph.call_function(torch.ops.aten.where.self, (condition, *pair))
        chosen.meta = {**node.meta, "val": node.meta["val"][number]}
        made.append(chosen)
    return made


def _without_axes(module: fx.GraphModule, node: fx.Node, condition: Any) -> Any:
    """A condition, which is of one element, without axes that the results may not have."""
    known = condition.meta.get("val") if isinstance(condition, fx.Node) else None
    if not isinstance(known, torch.Tensor) or not known.dim():
        return condition
    made = module.graph.call_function(torch.ops.aten.view.default, (condition, []))
    made.meta = {**node.meta, "val": known.reshape(())}
    return made


def _mapped(module: fx.GraphModule, node: fx.Node) -> list[Any]:
    """The body for each element along the first axis."""
    reference, rows, others = node.args
    return _each(module, node, reference, [], rows, others)


def _scanned(module: fx.GraphModule, node: fx.Node) -> list[Any]:
    """The body for each element along the first axis, with values that it hands on to the next step."""
    reference, carried, rows, others = node.args
    return _each(module, node, reference, carried, rows, others)


def _each(
    module: fx.GraphModule, node: fx.Node, reference: Any, carried: Any, rows: Any, others: Any
) -> list[Any]:
    body, graph = _body(module, reference), module.graph
    steps = int(rows[0].meta["val"].shape[0])
    if not 0 < steps <= MAX_STEPS or steps * len(body.graph.nodes) > MAX_NODES:
        name = _name(node)
        raise ImportFailed(f"operator {name}: a loop of {steps} steps is not written out", name)
    carried, stacks = list(carried), []
    for step in range(steps):
        parts = [_part(graph, node, one, step) for one in rows]
        made = _copied(module, body, [*carried, *parts, *others])
        carried, results = made[: len(carried)], made[len(carried) :]
        stacks.append(results)
    joined = []
    for number, values in enumerate(zip(*stacks, strict=True), len(carried)):
        stacked = graph.call_function(torch.ops.aten.stack.default, (list(values), 0))
        stacked.meta = {**node.meta, "val": node.meta["val"][number]}
        joined.append(stacked)
    return [*carried, *joined]


def _part(graph: fx.Graph, node: fx.Node, rows: fx.Node, step: int) -> fx.Node:
    part = graph.call_function(torch.ops.aten.select.int, (rows, 0, step))
    part.meta = {**node.meta, "val": rows.meta["val"][step]}
    return part


_EXPANSIONS: dict[str, Callable[[fx.GraphModule, fx.Node], list[Any]]] = {
    "cond": _chosen,
    "map_impl": _mapped,
    "scan": _scanned,
}
