"""The function of an attention: products with keys, softmax, and products with values, head by head.

With M rows of queries, N keys of D elements and values of E elements, the result is
softmax(scale Q K^T + mask) V. The function is unscheduled: the rule `attention` of the schedule families
computes a block of rows at a time, so that scores stay in a cache. Rows are filled up to a number that
register tiles divide, with repetitions of the last one; columns to whole vectors, with columns of no weight.

In quantised files bytes come in and go out, and scores and weights are rounded to bytes in between. These
operations (`steps`) are computed where the numbers are: queries are copied to a block, keys and values as
they are packed, and rows are divided by their sums before their weights are rounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import tirx

from host.lowering.attention.steps import Step, applied
from host.lowering.expressions.math import exp_below, weight_below
from host.lowering.graph import Node, Shape
from host.lowering.script import function_of_script

# Blocks that the rule knows.
KEYS, VALUES, BIAS, SCORES, MASKED, POWERS, MIXED, INVERSE, OUTPUT = (
    "keys",
    "values",
    "bias",
    "scores",
    "masked",
    "powers",
    "mixed",
    "inverse",
    "output",
)
# Of quantised files: queries as numbers, and weights that are rounded.
QUERIES, WEIGHTS = "queries", "weights"
LARGEST, TOTAL = "largest", "total"
_LOWEST = "T.float32(-3.4028234663852886e38)"
# Rows of a register tile below which its loads take longer than its arithmetic; rows that are added at most.
_ENOUGH_ROWS, _MOST_ADDED = 4, 24
# Scales that powers are taken with, and not scores one by one: products without others may overflow.
_LEAST_SCALE, _MOST_SCALE = 1e-3, 1e3
# Vectors of partial maxima and sums.
_PARTIALS = 4


@dataclass(frozen=True)
class Operand:
    """How a tensor of the graph is read or written.

    Attributes:
        axes: for each logical dimension (heads ..., rows, elements) the dimension of the tensor that it is;
            None where the tensor is broadcast.
        shape: of the tensor in memory. Dimensions that `axes` leaves out have one element.
        dtype: of its elements in memory.
        steps: what is computed of each element that is read, or before it is written.
    """

    axes: tuple[int | None, ...]
    shape: Shape
    dtype: str = "float32"
    steps: tuple[Step, ...] = ()

    @property
    def logical(self) -> Shape:
        """Extents of the logical dimensions."""
        return tuple(1 if axis is None else self.shape[axis] for axis in self.axes)

    def element(self, name: str, indices: Sequence[str]) -> str:
        """Text of the element with these logical indices."""
        placed = ["0"] * len(self.shape)
        for axis, index in zip(self.axes, indices, strict=True):
            if axis is not None:
                placed[axis] = index
        return f"{name}[{', '.join(placed)}]"


@dataclass(frozen=True)
class AttentionShape:
    """The extents of a function.

    Attributes:
        batch: extents of the dimensions before rows and elements: sequences, heads.
        rows: of queries.
        columns: keys.
        depth: elements of a query and of a key.
        width: elements of a value.
        lanes: elements of a vector along columns.
        value_lanes: the same along the elements of a value.
        filled_rows, filled_columns: with those that are added.
    """

    batch: tuple[int, ...]
    rows: int
    columns: int
    depth: int
    width: int
    lanes: int
    value_lanes: int
    filled_rows: int
    filled_columns: int

    @classmethod
    def of(
        cls, batch: Shape, rows: int, columns: int, depth: int, width: int, lanes: int
    ) -> AttentionShape | None:
        """The shape of attention on a target; None where its vectors would be too short.

        Args:
            batch: see the attributes.
            rows: see the attributes.
            columns: see the attributes.
            depth: see the attributes.
            width: see the attributes.
            lanes: fp32 elements of the target's vector.
        """
        value_lanes = math.gcd(width, lanes)
        if lanes < 4 or value_lanes < 4 or columns < lanes:
            return None
        unit = 2 * lanes if columns >= 8 * lanes else lanes
        filled = -(-columns // unit) * unit
        return cls(batch, rows, columns, depth, width, lanes, value_lanes, _filled_rows(rows), filled)

    @property
    def partials(self) -> int:
        """Elements of the vectors of partial maxima and sums."""
        vectors = self.filled_columns // self.lanes
        count = _PARTIALS
        while vectors % count or vectors < 2 * count:
            count //= 2
            if count == 0:
                return self.lanes
        return count * self.lanes

    @property
    def folds(self) -> tuple[int, ...]:
        """Elements that are left after each step of a row's maximum and sum."""
        widths = [self.partials]
        while widths[-1] > 1:
            before = widths[-1]
            widths.append(self.lanes if before > self.lanes else before // 2 if before > 4 else 1)
        return tuple(widths)


def _filled_rows(rows: int) -> int:
    """The number of rows with the least estimated time: rows that are added against tiles that are tall."""

    def cost(filled: int) -> float:
        tallest = max(height for height in range(1, 9) if filled % height == 0)
        return filled * max(1.0, 1.0 + 0.15 * (_ENOUGH_ROWS - tallest))

    return min(range(rows, rows + _MOST_ADDED), key=cost) if rows > _ENOUGH_ROWS else rows


def attention_function(node: Node) -> tirx.PrimFunc:
    """The function of an "attention" node: queries, keys, values, perhaps a mask, the result."""
    text = _Text(node.attrs["extents"], node.attrs)
    written = text.function()
    names: dict[str, Any] = text.names
    return function_of_script(written, **names)


class _Text:
    """TVMScript of a function, block by block.

    Args:
        shape: of the function.
        attrs: with the operands "query", "key", "value", "mask" (None without one) and "output", and "scale".
    """

    def __init__(self, shape: AttentionShape, attrs: Mapping[str, Any]) -> None:
        self.shape = shape
        self.operands: dict[str, Operand] = {
            name: attrs[name]
            for name in ("query", "key", "value", "mask", "output")
            if attrs[name] is not None
        }
        # Steps by what they are computed of, and the functions of the text that compute them.
        self.steps: dict[str, tuple[Step, ...]] = {
            **{name: operand.steps for name, operand in self.operands.items()},
            SCORES: attrs.get("scored", ()),
            WEIGHTS: attrs.get("weighed", ()),
        }
        self.names: dict[str, Callable[..., Any]] = {
            f"steps_of_{name}": partial(applied, steps) for name, steps in self.steps.items() if steps
        }
        self.scale = float(attrs["scale"])
        # Powers of quantised files round as those of their runtimes do, up to the last bits.
        self.names["power"] = exp_below
        if not any(self.steps.values()):
            taken = "mask" not in self.operands and _LEAST_SCALE <= self.scale <= _MOST_SCALE
            self.names["power"] = partial(weight_below, scale=self.scale if taken else 1.0)
            self.scale = 1.0 if taken else self.scale
        self.heads = tuple(f"vb{i}" for i in range(len(shape.batch)))
        self.lines: list[str] = []
        filled = shape.filled_rows != shape.rows
        # Repetitions of the last row are computed, and written to the same place.
        self.row = f"T.min(vi, {shape.rows - 1})" if filled else "vi"

    def function(self) -> str:
        """The text of the function."""
        self._signature()
        self._packed_operands()
        self._scores()
        self._softmax()
        self._result()
        return "\n".join(self.lines) + "\n"

    def _signature(self) -> None:
        self.lines += ["@T.prim_func(s_tir=True, private=True)", "def function("]
        for name, operand in self.operands.items():
            self.lines.append(f'    {name}: T.Buffer({_sizes(operand.shape)}, "{operand.dtype}"),')
        self.lines.append(") -> None:")

    def _allocate(self, name: str, sizes: Sequence[int], dtype: str = "float32") -> None:
        self.lines.append(f'    {name} = T.sblock_alloc_buffer({_sizes(sizes)}, "{dtype}")')

    def _block(self, name: str, axes: str, extents: Sequence[int], body: Sequence[str]) -> None:
        """A block over all heads and `extents`, whose axes are letters; capitals are reduced."""
        loops = [*(head.removeprefix("v") for head in self.heads), *axes]
        kinds = "".join("R" if axis.isupper() else "S" for axis in loops)
        variables = ", ".join(f"v{axis.lower()}" for axis in loops)
        all_extents = ", ".join(map(str, (*self.shape.batch, *extents)))
        self.lines += [
            f"    for {', '.join(loops)} in T.grid({all_extents}):",
            f'        with T.sblock("{name}"):',
            f'            {variables} = T.axis.remap("{kinds}", [{", ".join(loops)}])',
        ]
        self.lines += [" " * 12 + line for line in body]

    def _made(self, name: str, axes: str, extents: Sequence[int], value: str) -> None:
        """An intermediate tensor of all heads: element by element."""
        self._allocate(name, (*self.shape.batch, *extents))
        self._block(name, axes, extents, [f"{self._at(name, *(f'v{axis}' for axis in axes))} = {value}"])

    def _at(self, name: str, *indices: str) -> str:
        return f"{name}[{', '.join((*self.heads, *indices))}]"

    def _operand(self, name: str, *indices: str) -> str:
        return self._stepped(name, self.operands[name].element(name, (*self.heads, *indices)))

    def _stepped(self, name: str, *elements: str) -> str:
        """The steps that belong to a name, of an element and perhaps of one of a mask."""
        return f"steps_of_{name}({', '.join(elements)})" if self.steps[name] else ", ".join(elements)

    def _packed_operands(self) -> None:
        """Keys by vectors of columns, and values by vectors of their elements: each is one stream."""
        shape = self.shape
        column = f"vp * {shape.lanes} + vl"
        if shape.filled_columns != shape.columns:
            column = f"T.min({column}, {shape.columns - 1})"
        panels = shape.filled_columns // shape.lanes
        self._made(KEYS, "pdl", (panels, shape.depth, shape.lanes), self._operand("key", column, "vd"))
        blocks = shape.width // shape.value_lanes
        element = self._operand("value", "vn", f"ve * {shape.value_lanes} + vl")
        self._made(VALUES, "enl", (blocks, shape.columns, shape.value_lanes), element)

    def _scores(self) -> None:
        shape, scale = self.shape, self.scale
        extents = (shape.filled_rows, shape.filled_columns)
        query, lanes = self._operand("query", self.row, "vd"), shape.lanes
        if self.steps["query"]:
            self._made(QUERIES, "id", (shape.filled_rows, shape.depth), query)
            query = self._at(QUERIES, "vi", "vd")
        self._product(SCORES, "ijD", (*extents, shape.depth), query, f"vj // {lanes}, vd, vj % {lanes}")
        score = self._at(SCORES, "vi", "vj") + ("" if scale == 1.0 else f" * T.float32({scale!r})")
        if self.steps[SCORES]:
            score = self._stepped(SCORES, score, *([self._mask()] if "mask" in self.operands else []))
        elif "mask" in self.operands:
            score = f"{score} + {self._mask()}"
        # Columns that are added have the score of the last one, or a mask: maxima are the same with them.
        above = bool(self.steps[SCORES])
        self._made(MASKED, "ij", extents, self._within(score, _LOWEST) if above else score)

    def _product(self, name: str, axes: str, extents: Sequence[int], left: str, right: str) -> None:
        """A sum of products with packed keys (scores) or values (results)."""
        self._allocate(name, (*self.shape.batch, *extents[:-1]))
        packed = self._at(KEYS if name == SCORES else VALUES, right)
        total = self._at(name, *(f"v{axis}" for axis in axes[:-1]))
        body = ["with T.init():", f"    {total} = T.float32(0)", f"{total} = {total} + {left} * {packed}"]
        self._block(name, axes, extents, body)

    def _mask(self) -> str:
        """The element of the mask, from a copy with whole vectors where its rows have none."""
        shape, mask = self.shape, self.operands["mask"]
        if shape.filled_columns == shape.columns or mask.logical[-1] == 1:
            return self._operand("mask", self.row, "vj")
        axes = tuple(i if axis is not None else None for i, axis in enumerate(mask.axes))
        rows = shape.filled_rows if mask.logical[-2] > 1 else 1
        copy = Operand(axes, (*mask.logical[:-2], rows, shape.filled_columns), mask.dtype)
        loops = [f"m{i}" for i in range(len(copy.shape))]
        indices = [f"v{loop}" for loop in loops]
        if shape.rows < rows:
            indices[-2] = f"T.min({indices[-2]}, {shape.rows - 1})"
        # Not a clamped index: a vector of it would be gathered, and whole vectors are most of a row.
        within = f"v{loops[-1]} < {shape.columns}"
        added = f"T.{mask.dtype}(0)" if self.steps[SCORES] else _LOWEST
        copied = f"T.if_then_else({within}, {mask.element('mask', indices)}, {added})"
        self._allocate(BIAS, copy.shape, mask.dtype)
        place = ", ".join(f"v{loop}" for loop in loops)
        self.lines += [
            f"    for {', '.join(loops)} in T.grid({', '.join(map(str, copy.shape))}):",
            f'        with T.sblock("{BIAS}"):',
            f'            {place} = T.axis.remap("{"S" * len(loops)}", [{", ".join(loops)}])',
            f"            {BIAS}[{place}] = {copied}",
        ]
        return copy.element(BIAS, (*self.heads, "vi", "vj"))

    def _within(self, value: str, otherwise: str) -> str:
        """A value of a column that is there, or another one in those that are added."""
        shape = self.shape
        if shape.filled_columns == shape.columns:
            return value
        return f"T.Select(vj < {shape.columns}, {value}, {otherwise})"

    def _softmax(self) -> None:
        """Powers of each row's differences from its maximum, and the inverse of their sum."""
        extents = (self.shape.filled_rows, self.shape.filled_columns)
        self._folded(LARGEST, MASKED, "T.max({}, {})", _LOWEST)
        largest = self._at(f"{LARGEST}_1", "vi", "0")
        power = f"power({self._at(MASKED, 'vi', 'vj')}, {largest})"
        self._made(POWERS, "ij", extents, self._within(power, "T.float32(0)"))
        self._folded(TOTAL, POWERS, "{} + {}", "T.float32(0)")
        self._made(INVERSE, "i", extents[:1], f"T.float32(1) / {self._at(f'{TOTAL}_1', 'vi', '0')}")

    def _folded(self, name: str, source: str, combine: str, neutral: str) -> None:
        """Reduces rows to vectors of partial results, and those by halves."""
        rows, length = self.shape.filled_rows, self.shape.filled_columns
        for width in self.shape.folds:
            target = f"{name}_{width}"
            self._allocate(target, (*self.shape.batch, rows, width))
            result = self._at(target, "vi", "vw")
            combined = combine.format(result, self._at(source, "vi", f"vh * {width} + vw"))
            body = ["with T.init():", f"    {result} = {neutral}", f"{result} = {combined}"]
            self._block(target, "iwH", (rows, width, length // width), body)
            source, length = target, width

    def _result(self) -> None:
        shape = self.shape
        lanes = shape.value_lanes
        extents = (shape.filled_rows, shape.width)
        weights, inverse = POWERS, self._at(INVERSE, "vi")
        if self.steps[WEIGHTS]:
            weights = WEIGHTS
            share = f"{self._at(POWERS, 'vi', 'vj')} * {inverse}"
            self._made(
                WEIGHTS, "ij", (shape.filled_rows, shape.filled_columns), self._stepped(WEIGHTS, share)
            )
        taken = self._at(weights, "vi", "vn")
        self._product(MIXED, "ieN", (*extents, shape.columns), taken, f"ve // {lanes}, vn, ve % {lanes}")
        mixed = self._at(MIXED, "vi", "ve")
        if not self.steps[WEIGHTS]:
            mixed = f"{mixed} * {inverse}"
        result = self.operands["output"].element("output", (*self.heads, self.row, "ve"))
        self._block(OUTPUT, "ie", extents, [f"{result} = {self._stepped('output', mixed)}"])


def _sizes(sizes: Sequence[int]) -> str:
    return f"({', '.join(map(str, sizes))},)"
