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
# A row beyond all: the box is covered.
_COVERED = 1 << 62
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
    """TVMScript of the function: boxes are taken by score; those that a kept one covers are dropped."""
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
            # The boxes of a class that are left, as a heap whose first is the best, and how many they are.
            left = T.sblock_alloc_buffer(({count},), "int32")
            many = T.sblock_alloc_buffer((1,), "int32", scope="local")
            # Places in the heap: one that sinks, and the better one of those below it.
            sinks = T.sblock_alloc_buffer((1,), "int32", scope="local")
            below = T.sblock_alloc_buffer((1,), "int32", scope="local")
            # A box, one that was kept, the first row of a class, the row that is compared, and rows of all.
            at = T.sblock_alloc_buffer((1,), "int32", scope="local")
            best = T.sblock_alloc_buffer((1,), "int32", scope="local")
            first = T.sblock_alloc_buffer((1,), "int64", scope="local")
            compared = T.sblock_alloc_buffer((1,), "int64", scope="local")
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
                    for n in range(many[0] // 2):
                        sinks[0] = many[0] // 2 - 1 - n
{_sunk(24)}
                    first[0] = row[0]
                    while many[0] > 0:
                        at[0] = left[0]
                        many[0] = many[0] - 1
                        left[0] = left[many[0]]
                        sinks[0] = 0
{_sunk(24)}
                        if row[0] - first[0] < T.cast(most[0], "int64") and row[0] < T.int64({rows}):
                            compared[0] = first[0]
                            while compared[0] < row[0]:
                                best[0] = T.cast(result[compared[0], 2], "int32")
                                inner[0] = T.max({sides[0]}, T.{dtype}(0))
                                inner[0] = inner[0] * T.max({sides[1]}, T.{dtype}(0))
                                inner[1] = {area} + {best_area} - inner[0]
                                compared[0] = compared[0] + T.int64(1)
                                if inner[0] > T.{dtype}(0) and inner[0] / inner[1] > overlap[0]:
                                    compared[0] = T.int64({_COVERED})
                            if compared[0] < T.int64({_COVERED}):
                                result[row[0], 0] = T.int64(b)
                                result[row[0], 1] = T.int64(c)
                                result[row[0], 2] = T.cast(at[0], "int64")
                                row[0] = row[0] + T.int64(1)
                        else:
                            many[0] = 0
            for r in range({rows}):
                if T.int64(r) >= row[0]:
                    for k in range(3):
                        result[r, k] = T.int64(-1)
"""


def _sunk(indent: int) -> str:
    """Text that moves a box down in the heap, until no better one is below it."""
    return "\n".join(
        " " * indent + line
        for line in (
            "while sinks[0] >= 0:",
            "    below[0] = 2 * sinks[0] + 1",
            "    if below[0] + 1 < many[0]:",
            f"        if {_better('left[below[0] + 1]', 'left[below[0]]')}:",
            "            below[0] = below[0] + 1",
            "    if below[0] >= many[0]:",
            "        sinks[0] = -1",
            f"    elif {_better('left[below[0]]', 'left[sinks[0]]')}:",
            "        best[0] = left[sinks[0]]",
            "        left[sinks[0]] = left[below[0]]",
            "        left[below[0]] = best[0]",
            "        sinks[0] = below[0]",
            "    else:",
            "        sinks[0] = -1",
        )
    )


def _better(one: str, other: str) -> str:
    """Text of whether a box is taken before another: of equal scores the first."""
    first, second = f"scores[b, c, {one}]", f"scores[b, c, {other}]"
    return f"{first} > {second} or ({first} == {second} and {one} < {other})"


SPECS: tuple[OpSpec, ...] = (
    OpSpec(OPERATION, read={f"edgetlm.{OPERATION}": _read}, function=suppression_function),
)
