"""Ensembles of decision trees, (N, F) to (N, C); attributes `steps`, `modes`, `combine` and `missing`.

The M nodes of all trees and the L leaves behind them are rows of one table. A row is walked down in `steps`
steps, from the root of each tree: a node leads to one of two others, a leaf to itself. Inputs are the data,
the table's columns (feature, threshold, comparison, the two rows that follow, where a missing value goes),
the roots (T), and what a leaf adds to each output (L, C).
"""

from __future__ import annotations

import json

from tvm import tirx

from host.lowering.builder import Builder
from host.lowering.graph import Node, Value
from host.lowering.reader.call import OperatorCall
from host.lowering.script import buffer_text, function_of_script, step_text
from host.lowering.spec import OpSpec

OPERATION = "tree_ensemble"

# Comparisons of a feature with a threshold, in the order of the ONNX standard's numbers for them. A missing
# value passes none; it would pass the standard's last one, "!=", which is "==" with its rows exchanged here.
COMPARISONS = ("<=", "<", ">=", ">", "==")
# How the leaves that a row ends in make an output, and what an output is before the first.
_COMBINED = {
    "add": ("{0} + {1}", "0"),
    "min": ("T.min({0}, {1})", "'inf'"),
    "max": ("T.max({0}, {1})", "'-inf'"),
}


def _read(builder: Builder, call: OperatorCall) -> Value:
    *tensors, options = call.arguments
    attrs = json.loads(options.value)
    attrs["modes"] = tuple(attrs["modes"])
    return builder.emit(OPERATION, tensors, attrs, call.outputs)[0]


def tree_function(node: Node) -> tirx.PrimFunc:
    """The function of a "tree_ensemble" node; arguments are its inputs and then its output."""
    return function_of_script(_text(node))


def _text(node: Node) -> str:
    """TVMScript of the function."""
    data, feature, threshold, mode, yes, no, missing, roots, leaves = (buffer_text(v) for v in node.inputs)
    rows, outputs = node.output.shape
    nodes, trees = node.inputs[1].shape[0] - node.inputs[8].shape[0], node.inputs[7].shape[0]
    dtype = node.output.dtype
    names = ("feature", "threshold", "mode", "yes", "no", "missing", "root", "leaf")
    tables = [
        f"{name}[{', '.join(f'0:{size}' for size in value.shape)}]"
        for name, value in zip(names, node.inputs[1:], strict=True)
    ]
    combined, start = _COMBINED[node.attrs["combine"]]
    combined = combined.format("result[vn, c]", f"leaf[place[0] - {nodes}, c]")
    return f"""
@T.prim_func(s_tir=True, private=True)
def function(
    data: {data}, feature: {feature}, threshold: {threshold}, mode: {mode}, yes: {yes}, no: {no},
    missing: {missing}, root: {roots}, leaf: {leaves}, result: {buffer_text(node.output)},
) -> None:
    for n in range({rows}):
        with T.sblock("walk"):
            vn = T.axis.spatial({rows}, n)
            {step_text(trees * (8 * node.attrs["steps"] / outputs + 2), "result")}
            T.reads(data[vn, 0:{node.inputs[0].shape[1]}], {", ".join(tables)})
            T.writes(result[vn, 0:{outputs}])
            place = T.sblock_alloc_buffer((1,), "int32", scope="local")
            value = T.sblock_alloc_buffer((1,), "{dtype}", scope="local")
            for c in range({outputs}):
                result[vn, c] = T.{dtype}({start})
            for t in range({trees}):
                place[0] = root[t]
                for s in range({node.attrs["steps"]}):
                    value[0] = data[vn, feature[place[0]]]
                    place[0] = T.if_then_else({_taken(node)}, yes[place[0]], no[place[0]])
                for c in range({outputs}):
                    result[vn, c] = {combined}
"""


def _taken(node: Node) -> str:
    """Text of whether the first branch is taken."""
    modes = [f"value[0] {COMPARISONS[number]} threshold[place[0]]" for number in node.attrs["modes"]]
    taken = modes[-1]
    for number, compared in zip(node.attrs["modes"][:-1], modes[:-1], strict=True):
        taken = f"T.if_then_else(mode[place[0]] == {number}, {compared}, {taken})"
    if node.attrs["missing"]:
        taken = f"({taken}) or (missing[place[0]] != 0 and T.isnan(value[0]))"
    return taken


SPECS: tuple[OpSpec, ...] = (OpSpec(OPERATION, read={f"edgetlm.{OPERATION}": _read}, function=tree_function),)
