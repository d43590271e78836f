"""Boxes that no better one covers, as ONNX's NonMaxSuppression; attributes `centred`.

Inputs are boxes (B, N, 4), scores (B, C, N), and three numbers (1): how many boxes of a batch and class are
kept at most, the share of the union above which boxes cover each other, and the score that a box must be
above. The output (R, 3) int64 has batch, class and box of R kept ones, in the order in which they are kept:
batch by batch, class by class, the best first. Rows beyond the last one are -1.
"""

from __future__ import annotations

import json

from tvm import tirx

from host.lowering.builder import Builder
from host.lowering.graph import Node, Value
from host.lowering.reader.call import OperatorCall
from host.lowering.script import buffer_text, function_of_script, step_text
from host.lowering.spec import OpSpec

OPERATION = "non_max_suppression"
# Operations of a score, with what few of them take that are high enough to be kept.
_OF_SCORE = 10

# Corners of box `i`: the smaller and the larger coordinate along both axes.
_CORNERS = {
    False: ("T.min(boxes[b, i, {d}], boxes[b, i, {d} + 2])", "T.max(boxes[b, i, {d}], boxes[b, i, {d} + 2])"),
    True: (
        "(boxes[b, i, {d}] - boxes[b, i, {d} + 2] / {two})",
        "(boxes[b, i, {d}] + boxes[b, i, {d} + 2] / {two})",
    ),
}


def _read(builder: Builder, call: OperatorCall) -> Value:
    *tensors, options = call.arguments
    return builder.emit(OPERATION, tensors, json.loads(options.value), call.outputs)[0]


def suppression_function(node: Node) -> tirx.PrimFunc:
    """The function of a "non_max_suppression" node; arguments are its inputs and then its output."""
    return function_of_script(_text(node))


def _text(node: Node) -> str:
    """TVMScript of the function: boxes are taken by score; each takes those out that it covers."""
    boxes, scores, most, overlap, least = (buffer_text(value) for value in node.inputs)
    batch, classes, count = node.inputs[1].shape
    rows, dtype = node.output.shape[0], node.inputs[0].dtype
    corners = [part.replace("{two}", f"T.{dtype}(2)") for part in _CORNERS[node.attrs["centred"]]]
    low, high = (part.replace("i,", "at[0],") for part in corners)
    other = [part.replace("i,", "best[0],") for part in corners]
    sides = [
        f"T.min({other[1]}, {high}) - T.max({other[0]}, {low})".replace("{d}", str(axis)) for axis in (0, 1)
    ]
    area = " * ".join(f"({high} - {low})".replace("{d}", str(axis)) for axis in (0, 1))
    best_area = area.replace("at[0],", "best[0],")
    return f"""
@T.prim_func(s_tir=True, private=True)
def function(
    boxes: {boxes}, scores: {scores}, most: {most}, overlap: {overlap}, least: {least},
    result: {buffer_text(node.output)},
) -> None:
    for s in range(1):
        with T.sblock("suppress"):
            vs = T.axis.spatial(1, s)
            {step_text(_OF_SCORE, "scores")}
            T.reads(
                boxes[0:{batch}, 0:{count}, 0:4], scores[0:{batch}, 0:{classes}, 0:{count}], most[0:1],
                overlap[0:1], least[0:1]
            )
            T.writes(result[0:{rows}, 0:3])
            # The boxes of a class that are left, in their order, and how many of them are.
            left = T.sblock_alloc_buffer(({count},), "int32")
            many = T.sblock_alloc_buffer((1,), "int32", scope="local")
            # The best box that is left, one that is looked at, how many stay, how many of a class are kept,
            # and how many of all.
            best = T.sblock_alloc_buffer((1,), "int32", scope="local")
            at = T.sblock_alloc_buffer((1,), "int32", scope="local")
            stay = T.sblock_alloc_buffer((1,), "int32", scope="local")
            kept = T.sblock_alloc_buffer((1,), "int64", scope="local")
            row = T.sblock_alloc_buffer((1,), "int64", scope="local")
            inner = T.sblock_alloc_buffer((2,), "{dtype}", scope="local")
            row[0] = T.int64(0)
            for b in range({batch}):
                for c in range({classes}):
                    many[0] = 0
                    for i in range({count}):
                        if scores[b, c, i] > least[0]:
                            left[many[0]] = i
                            many[0] = many[0] + 1
                    kept[0] = T.int64(0)
                    while many[0] > 0:
                        stay[0] = 0
                        if kept[0] < T.cast(most[0], "int64") and row[0] < T.int64({rows}):
                            best[0] = left[0]
                            for n in range(many[0]):
                                if scores[b, c, left[n]] > scores[b, c, best[0]]:
                                    best[0] = left[n]
                            for n in range(many[0]):
                                at[0] = left[n]
                                inner[0] = T.max({sides[0]}, T.{dtype}(0))
                                inner[0] = inner[0] * T.max({sides[1]}, T.{dtype}(0))
                                inner[1] = {area} + {best_area} - inner[0]
                                left[stay[0]] = at[0]
                                if inner[0] > T.{dtype}(0) and inner[0] / inner[1] > overlap[0]:
                                    stay[0] = stay[0] - 1
                                elif at[0] == best[0]:
                                    stay[0] = stay[0] - 1
                                stay[0] = stay[0] + 1
                            result[row[0], 0] = T.int64(b)
                            result[row[0], 1] = T.int64(c)
                            result[row[0], 2] = T.cast(best[0], "int64")
                            row[0] = row[0] + T.int64(1)
                            kept[0] = kept[0] + T.int64(1)
                        many[0] = stay[0]
            for r in range({rows}):
                if T.int64(r) >= row[0]:
                    for k in range(3):
                        result[r, k] = T.int64(-1)
"""


SPECS: tuple[OpSpec, ...] = (
    OpSpec(OPERATION, read={f"edgetlm.{OPERATION}": _read}, function=suppression_function),
)
