"""Ensembles of decision trees of the domain ai.onnx.ml, as one table of nodes and leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from onnx import numpy_helper
from tvm import relax

from host.importers.onnx.operators.context import (
    Attributes,
    Context,
    Converter,
    Inputs,
    constant,
    dtype_of,
    scalar,
    shape_of,
)
from host.importers.own_operator import emit_own

_EQUAL, _UNEQUAL, _MEMBER = 4, 5, 6
_MODES = (b"BRANCH_LEQ", b"BRANCH_LT", b"BRANCH_GTE", b"BRANCH_GT", b"BRANCH_EQ", b"BRANCH_NEQ")
_LEAF = b"LEAF"
_AGGREGATES = {0: "add", 1: "add", 2: "min", 3: "max"}
_AVERAGE = 0
_NAMED_AGGREGATES = {b"AVERAGE": 0, b"SUM": 1, b"MIN": 2, b"MAX": 3}
_TRANSFORMS = {b"NONE": 0, b"SOFTMAX": 1, b"LOGISTIC": 2, b"SOFTMAX_ZERO": 3, b"PROBIT": 4}
# Elements of the table of what leaves add to outputs.
_MOST_LEAF_VALUES = 1 << 24


@dataclass(frozen=True, eq=False)
class _Trees:
    """Nodes by columns, with the leaves behind them: row M + i is leaf i.

    Attributes:
        feature, threshold, mode, yes, no, missing: of the M nodes; `yes` and `no` are rows.
        roots: a row for each tree.
        leaves: (L, C), what each leaf adds to each output.
        aggregate, transform: numbers of the standard.
    """

    feature: np.ndarray
    threshold: np.ndarray
    mode: np.ndarray
    yes: np.ndarray
    no: np.ndarray
    missing: np.ndarray
    roots: np.ndarray
    leaves: np.ndarray
    aggregate: int
    transform: int


def _ensemble(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    """TreeEnsemble of ai.onnx.ml, version 5: one table of nodes and one of leaves for all trees."""
    data = inputs[0]
    dtype = dtype_of(data)
    splits = numpy_helper.to_array(attributes["nodes_splits"])
    weights = numpy_helper.to_array(attributes["leaf_weights"])
    modes = numpy_helper.to_array(attributes["nodes_modes"]).astype(np.int64)
    targets = np.asarray(attributes["leaf_targetids"], np.int64)
    count = int(attributes["n_targets"])
    nodes = len(modes)
    columns = {
        name: _column(context, attributes, f"nodes_{name}", nodes)
        for name in ("featureids", "truenodeids", "falsenodeids", "trueleafs", "falseleafs")
    }
    if len(splits) != nodes or targets.shape != weights.shape:
        raise context.fail("its lists of nodes or leaves are of several lengths")
    aggregate = int(attributes.get("aggregate_function", 1))
    trees = _Trees(
        feature=columns["featureids"],
        threshold=splits,
        mode=modes,
        yes=columns["truenodeids"] + nodes * columns["trueleafs"],
        no=columns["falsenodeids"] + nodes * columns["falseleafs"],
        missing=_column(context, attributes, "nodes_missing_value_tracks_true", nodes, 0),
        roots=np.asarray(attributes["tree_roots"], np.int64),
        leaves=_leaves(context, (len(weights), count), np.arange(len(weights)), targets, weights, aggregate),
        aggregate=aggregate,
        transform=int(attributes.get("post_transform", 0)),
    )
    members = attributes.get("membership_values")
    trees = _without_members(
        context, trees, np.zeros(0) if members is None else numpy_helper.to_array(members)
    )
    return _converted(context, data, trees, dtype)


def _column(
    context: Context, attributes: Attributes, name: str, count: int, default: int | None = None
) -> np.ndarray:
    given = attributes.get(name)
    if not given and default is not None:
        return np.full(count, default, np.int64)
    column = np.asarray(() if given is None else given, np.int64)
    if column.shape != (count,):
        raise context.fail(f"{name} has {column.size} entries for {count} nodes")
    return column


def _leaves(
    context: Context,
    shape: tuple[int, int],
    rows: np.ndarray,
    targets: np.ndarray,
    weights: np.ndarray,
    aggregate: int,
) -> np.ndarray:
    """What each leaf adds to each output (L, C), from the weights that are in the file one by one."""
    if not 0 < shape[0] * shape[1] <= _MOST_LEAF_VALUES or aggregate not in _AGGREGATES:
        raise context.fail(f"{shape[0]} leaves for {shape[1]} outputs have no conversion")
    if targets.size and not 0 <= targets.min() <= targets.max() < shape[1]:
        raise context.fail("a leaf adds to an output that is not there")
    if _AGGREGATES[aggregate] == "add":
        table = np.zeros(shape)
        np.add.at(table, (rows, targets), weights)
        return table
    table = np.full(shape, np.inf if _AGGREGATES[aggregate] == "min" else -np.inf)
    table[rows, targets] = weights
    return table


def _without_members(context: Context, trees: _Trees, values: np.ndarray) -> _Trees:
    """Each test of membership as a chain of tests of equality, which all lead to the same row."""
    where = np.flatnonzero(trees.mode == _MEMBER)
    if not len(where):
        return trees
    ends = np.flatnonzero(np.isnan(values))
    if len(ends) != len(where):
        raise context.fail("it has not as many sets as tests of membership")
    added: list[tuple[int, float, int, int]] = []
    nodes = len(trees.mode)
    more = sum(max(end - start - 1, 0) for start, end in _sets(ends))
    shifted = [np.where(rows >= nodes, rows + more, rows) for rows in (trees.yes, trees.no)]
    yes, no, threshold, mode = shifted[0], shifted[1], trees.threshold.copy(), trees.mode.copy()
    for node, (start, end) in zip(where, _sets(ends), strict=True):
        mode[node] = _EQUAL
        # Nothing is equal to a missing value, so that an empty set has no member.
        members = list(values[start:end]) or [np.nan]
        threshold[node] = members[0]
        first = nodes + len(added)
        others, last = members[1:], no[node]
        for position, member in enumerate(others):
            rest = first + position + 1 if position + 1 < len(others) else last
            added.append((int(node), float(member), int(yes[node]), int(rest)))
        no[node] = first if others else last
    origin = np.array([node for node, *_ in added], np.int64)
    return replace(
        trees,
        feature=np.append(trees.feature, trees.feature[origin]),
        threshold=np.append(threshold, [member for _, member, *_ in added]),
        mode=np.append(mode, np.full(len(added), _EQUAL)),
        yes=np.append(yes, np.array([row for *_, row, _ in added], np.int64)),
        no=np.append(no, np.array([row for *_, row in added], np.int64)),
        missing=np.append(trees.missing, trees.missing[origin]),
    )


def _without_unequal(trees: _Trees) -> _Trees:
    """Tests of inequality, which missing values pass, as tests of equality with their rows exchanged."""
    unequal = trees.mode == _UNEQUAL
    return replace(
        trees,
        mode=np.where(unequal, _EQUAL, trees.mode),
        yes=np.where(unequal, trees.no, trees.yes),
        no=np.where(unequal, trees.yes, trees.no),
        missing=np.where(unequal, 0, trees.missing),
    )


def _sets(ends: np.ndarray) -> list[tuple[int, int]]:
    return [(int(before) + 1, int(end)) for before, end in zip(np.append(-1, ends[:-1]), ends, strict=True)]


def _regressor(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    """TreeEnsembleRegressor: nodes and leaves in one list, found by the numbers of their tree and node."""
    if "nodes_values_as_tensor" in attributes or "target_weights_as_tensor" in attributes:
        raise context.fail("thresholds in double precision have no conversion")
    try:
        trees = _listed(context, attributes)
    except (KeyError, ValueError):
        raise context.fail("its lists of nodes and weights do not fit together") from None
    result = _converted(context, inputs[0], trees, "float32", transform=False)
    base = attributes.get("base_values")
    if base and trees.leaves.shape[1] > 1:
        # ONNX Runtime leaves an output at 0 that no leaf adds to, where the standard adds the base to all.
        raise context.fail("base values of several outputs have no conversion")
    if base:
        result = context.emit(relax.op.add(result, constant(np.asarray(base, np.float32))))
    return _transformed(context, result, trees.transform)


def _listed(context: Context, attributes: Attributes) -> _Trees:
    """The trees of a list in which a node is named by its tree and its number there."""
    modes = attributes["nodes_modes"]
    count = len(modes)
    names = ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")
    tree, number, feature, yes, no = (
        _column(context, attributes, f"nodes_{name}", count).tolist() for name in names
    )
    missing = _column(context, attributes, "nodes_missing_value_tracks_true", count, 0)
    leaf = np.array([mode == _LEAF for mode in modes], bool)
    nodes, leaves = np.flatnonzero(~leaf), np.flatnonzero(leaf)
    row = np.empty(count, np.int64)
    row[nodes], row[leaves] = np.arange(len(nodes)), len(nodes) + np.arange(len(leaves))
    place = {(tree[i], number[i]): int(row[i]) for i in range(count)}
    # The first node of a tree is its root.
    roots = {tree[i]: int(row[i]) for i in reversed(range(count))}
    ends = zip(attributes["target_treeids"], attributes["target_nodeids"], strict=True)
    rows = np.array([place[end] for end in ends], np.int64) - len(nodes)
    targets = np.asarray(attributes["target_ids"], np.int64)
    weights = np.asarray(attributes["target_weights"], np.float32)
    aggregate = _NAMED_AGGREGATES.get(attributes.get("aggregate_function", b"SUM"), -1)
    if rows.min(initial=0) < 0 or not len(rows) == len(targets) == len(weights):
        raise context.fail("a node that is no leaf has a weight, or a leaf has none")
    return _Trees(
        feature=np.array(feature, np.int64)[nodes],
        threshold=np.asarray(attributes["nodes_values"], np.float32)[nodes],
        mode=np.array([_MODES.index(modes[i]) for i in nodes], np.int64),
        yes=np.array([place[tree[i], yes[i]] for i in nodes], np.int64),
        no=np.array([place[tree[i], no[i]] for i in nodes], np.int64),
        missing=missing[nodes],
        roots=np.array(list(roots.values()), np.int64),
        leaves=_leaves(
            context, (len(leaves), int(attributes["n_targets"])), rows, targets, weights, aggregate
        ),
        aggregate=aggregate,
        transform=_TRANSFORMS.get(attributes.get("post_transform", b"NONE"), -1),
    )


def _converted(context: Context, data: Any, trees: _Trees, dtype: str, transform: bool = True) -> Any:
    """The operation, its leaves put together, and what is done to the outputs at last."""
    shape = shape_of(context, data)
    if len(shape) != 2 or not shape[0]:
        raise context.fail(f"data of shape {shape} has no conversion")
    if trees.feature.size and not 0 <= trees.feature.min() <= trees.feature.max() < shape[1]:
        raise context.fail(f"it reads features that data of {shape[1]} columns does not have")
    if dtype_of(data) != dtype:
        data = context.emit(relax.op.astype(data, dtype))
    trees = _without_unequal(trees)
    leaves = len(trees.leaves)
    itself = len(trees.mode) + np.arange(leaves)
    yes, no = (np.append(rows, itself) for rows in (trees.yes, trees.no))
    steps = _depth(context, trees)
    columns = [
        np.append(trees.feature, np.zeros(leaves, np.int64)),
        np.append(trees.threshold, np.zeros(leaves)).astype(dtype),
        np.append(trees.mode, np.full(leaves, trees.mode[0] if len(trees.mode) else 0)),
        yes,
        no,
        np.append(trees.missing, np.zeros(leaves, np.int64)),
        trees.roots,
        trees.leaves.astype(dtype),
    ]
    tensors = [constant(array if array.dtype == dtype else array.astype(np.int32)) for array in columns]
    options = {
        "steps": steps,
        "modes": sorted({int(mode) for mode in trees.mode}) or [0],
        "combine": _AGGREGATES[trees.aggregate],
        "missing": bool(trees.missing.any()),
    }
    outputs = [((shape[0], trees.leaves.shape[1]), dtype)]
    (result,) = emit_own(context.builder, "tree_ensemble", [data, *tensors], options, outputs)
    if trees.aggregate == _AVERAGE:
        result = context.emit(relax.op.divide(result, scalar(len(trees.roots), dtype)))
    if _AGGREGATES[trees.aggregate] != "add":
        # An output that no leaf adds to is 0.
        infinite = context.emit(relax.op.isinf(result))
        result = context.emit(relax.op.where(infinite, scalar(0, dtype), result))
    return _transformed(context, result, trees.transform) if transform else result


def _depth(context: Context, trees: _Trees) -> int:
    """The most steps from a root to a leaf.

    Raises:
        ImportFailed: a node leads nowhere, or back to where it was.
    """
    nodes, rows = len(trees.mode), len(trees.mode) + len(trees.leaves)
    everything: Sequence[np.ndarray] = (trees.yes, trees.no, trees.roots)
    if not len(trees.roots) or any(r.size and not 0 <= r.min() <= r.max() < rows for r in everything):
        raise context.fail("a node leads to one that is not there")
    if nodes and not 0 <= trees.mode.min() <= trees.mode.max() < len(_MODES):
        raise context.fail("it has comparisons of a kind that is not known")
    here, steps = np.unique(trees.roots), 0
    while (here := here[here < nodes]).size:
        here = np.unique(np.append(trees.yes[here], trees.no[here]))
        steps += 1
        if steps > nodes:
            raise context.fail("its nodes lead back to themselves")
    return steps


def _transformed(context: Context, result: Any, transform: int) -> Any:
    if transform == 0:
        return result
    if shape_of(context, result)[1] == 1:
        # ONNX Runtime leaves it out where there is one output.
        raise context.fail("the transform of a single output has no conversion")
    if transform == 1:
        return relax.op.nn.softmax(result, -1)
    if transform == 2:
        return relax.op.sigmoid(result)
    raise context.fail("the transform of its outputs has no conversion")


CONVERTERS: dict[str, Converter] = {
    "ai.onnx.ml.TreeEnsemble": _ensemble,
    "ai.onnx.ml.TreeEnsembleRegressor": _regressor,
}
