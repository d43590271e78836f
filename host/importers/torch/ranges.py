"""What integer inputs of an exported torch program may be."""

from __future__ import annotations

import torch
from torch import fx

from host.importers.random_inputs import InputRange, looks_like_mask
from host.model import TensorSpec

_PASSING = {
    "_local_scalar_dense",
    "_to_copy",
    "alias",
    "clone",
    "contiguous",
    "detach",
    "expand",
    "flatten",
    "item",
    "permute",
    "reshape",
    "select",
    "slice",
    "squeeze",
    "to",
    "transpose",
    "unsqueeze",
    "view",
}
# Operators with an axis behind the tensor, whose places along that axis the numbers are.
_ALONG = ("gather", "index_add", "index_copy", "index_fill", "index_select", "select")
_SCATTERS = ("scatter", "scatter_add", "scatter_reduce")
# Operators whose second argument has a tensor of indices for each of the first axes, or None.
_BY_AXIS = ("index", "index_put", "index_put_")
_BAGS = ("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only")
_TABLES = {
    **dict.fromkeys(("embedding", *_BAGS), (0, 1)),
    **dict.fromkeys(_BY_AXIS, (0, 1)),
    **dict.fromkeys((*_ALONG, *_SCATTERS), (0, 2)),
}


def input_ranges(program: torch.export.ExportedProgram, specs: tuple[TensorSpec, ...]) -> list[InputRange]:
    """The values that each input may take, as far as the program shows."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    return [_range(spec, nodes[spec.name]) for spec in specs]


def _range(spec: TensorSpec, node: fx.Node) -> InputRange:
    if "int" not in spec.dtype:
        return InputRange(spec, mask=spec.dtype == "float32" and looks_like_mask(spec.name))
    rows = _rows_of_bags(node)
    if rows is not None:
        return InputRange(spec, 0, rows + 1, ascending=True)
    bounds = _bounds(node, set())
    if bounds:
        return InputRange(spec, 0, min(bounds))
    return InputRange(spec, mask=looks_like_mask(spec.name) or _compared_or_cast(node))


def _rows_of_bags(node: fx.Node) -> int | None:
    """How many rows bags have together, if the node says where each bag begins."""
    for user in node.users:
        if _name(user) in _PASSING and user.args and user.args[0] is node:
            rows = _rows_of_bags(user)
            if rows is not None:
                return rows
        elif _name(user) in _BAGS and len(user.args) > 2 and user.args[2] is node:
            return int(user.args[1].meta["val"].shape[0])
    return None


def _bounds(node: fx.Node, seen: set[fx.Node]) -> list[int]:
    """Sizes of the tables that the values of a node index."""
    bounds: list[int] = []
    if node in seen:
        return bounds
    seen.add(node)
    for user in node.users:
        name = _name(user)
        if name in _PASSING and user.args and user.args[0] is node:
            bounds += _bounds(user, seen)
        elif name in _TABLES and len(user.args) > _TABLES[name][1]:
            table, index = (user.args[position] for position in _TABLES[name])
            if index is node and isinstance(table, fx.Node):
                axis = int(user.args[1]) if name in (*_ALONG, *_SCATTERS) else 0
                bounds.append(int(table.meta["val"].shape[axis]))
            elif (
                name in _BY_AXIS
                and isinstance(index, list | tuple)
                and node in index
                and isinstance(table, fx.Node)
            ):
                bounds.append(int(table.meta["val"].shape[list(index).index(node)]))
    return bounds


def _compared_or_cast(node: fx.Node) -> bool:
    """Whether an integer input is at once made a truth value, as an unnamed attention mask is."""
    users = [user for user in node.users if not _name(user).startswith("_assert")]
    return bool(users) and all(
        _name(user) in ("to", "_to_copy") and torch.bool in (*user.args, *user.kwargs.values())
        for user in users
    )


def _name(node: fx.Node) -> str:
    """`embedding` for `aten.embedding.default`."""
    target = node.target
    return target._schema.name.split("::")[-1] if isinstance(target, torch._ops.OpOverload) else str(target)
