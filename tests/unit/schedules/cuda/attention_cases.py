"""Attention with arguments and results, as the lowering writes it for GPUs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import tirx

from host.lowering.attention.function import Operand
from host.lowering.attention.pattern import MATRIX_OPERATION
from host.lowering.functions import FunctionTable
from host.lowering.fusion import Group
from host.lowering.graph import Node, Value
from host.lowering.ops import known_operators

_HALF = "float16"


@dataclass(frozen=True)
class Case:
    """An attention over (sequences, heads, rows or columns, elements).

    Attributes:
        sequences, heads, rows, columns, depth, width: extents.
        mask: extents of what is added, 1 where it is broadcast; empty without a mask.
        causal: a row sees columns up to its number and this.
        between: whether heads lie between rows and elements in memory, as products of all heads leave them.
        turned: whether keys lie in memory by their elements, columns side by side.
        single: whether queries, keys, values and result lie in memory in single precision.
        scale: of the scores.
    """

    sequences: int = 1
    heads: int = 2
    rows: int = 40
    columns: int = 40
    depth: int = 64
    width: int = 64
    mask: tuple[int, ...] = ()
    causal: int | None = None
    between: bool = True
    turned: bool = False
    single: bool = False
    scale: float = 0.125

    def function(self) -> tirx.PrimFunc:
        """The unscheduled function: queries, keys, values, perhaps a mask, the result."""
        inputs = [Value(array.shape, "float32") for array in self.inputs(np.random.default_rng(0))]
        operands = self._operands()
        attrs = {name: operand and self._of_several(operand) for name, operand in operands.items()}
        attrs |= {"scale": self.scale, "causal": self.causal}
        node = Node(known_operators()[MATRIX_OPERATION], tuple(inputs), attrs)
        result = operands["output"]
        assert result is not None
        node.outputs = (Value(result.shape, "float32", producer=node),)
        halves = {} if self.single else dict.fromkeys((*inputs[:3], *node.outputs), _HALF)
        table = FunctionTable(halves)
        return table.functions[table.call(Group([node])).name]

    def _of_several(self, operand: Operand) -> Operand:
        """Without the dimensions before rows that have one element, as the lowering writes it."""
        extents = (self.sequences, self.heads, self.rows, self.columns)
        kept = [axis for n, axis in enumerate(operand.axes) if n > 1 or extents[n] > 1]
        return Operand(tuple(kept), operand.shape)

    def inputs(self, draw: np.random.Generator) -> list[np.ndarray]:
        """Arguments."""
        kind = "float32" if self.single else _HALF
        given = [
            draw.normal(size=operand.shape).astype(kind)
            for name, operand in self._operands().items()
            if operand is not None and name not in ("mask", "output")
        ]
        mask = self._operands()["mask"]
        if mask is not None:
            low = np.float32(np.finfo("float32").min)
            given.append(
                np.where(draw.random(mask.shape) > 0.7, low, draw.normal(size=mask.shape)).astype("f4")
            )
        return given

    @staticmethod
    def arguments(arrays: list[np.ndarray]) -> list[np.ndarray]:
        """The inputs in the order of the function, which reads a mask before the values."""
        query, key, value, *masks = arrays
        return [query, key, *masks, value]

    def output(self, arrays: list[np.ndarray]) -> np.ndarray:
        """The result, by NumPy."""
        operands = self._operands()
        names = ("query", "key", "value", "mask")
        query, key, value, *masks = (
            array.astype("float64").transpose(_order(operands[name]))
            for name, array in zip(names, arrays, strict=False)
        )
        scores = query @ np.swapaxes(key, -1, -2) * self.scale
        for mask in masks:
            scores = np.maximum(scores + mask, np.finfo("float32").min)
        if self.causal is not None:
            seen = np.arange(self.columns)[None] <= np.arange(self.rows)[:, None] + self.causal
            scores = np.where(seen, scores, -np.inf)
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = powers / powers.sum(-1, keepdims=True) @ value
        order = np.argsort(_order(operands["output"]))
        return np.ascontiguousarray(mixed.transpose(order)).astype("float32" if self.single else _HALF)

    def _operands(self) -> dict[str, Operand | None]:
        sizes = {
            "query": (self.rows, self.depth),
            "key": (self.columns, self.depth),
            "value": (self.columns, self.width),
        }
        found: dict[str, Operand | None] = {
            name: self._operand(*size, name == "key" and self.turned) for name, size in sizes.items()
        }
        mask = None
        if self.mask:
            axes = tuple(axis if size > 1 else None for axis, size in enumerate(self.mask))
            mask = Operand(axes, self.mask)
        return {**found, "mask": mask, "output": self._operand(self.rows, self.width, False)}

    def _operand(self, outer: int, elements: int, turned: bool) -> Operand:
        if turned:
            return Operand((0, 1, 3, 2), (self.sequences, self.heads, elements, outer))
        if self.between:
            return Operand((0, 2, 1, 3), (self.sequences, outer, self.heads, elements))
        return Operand((0, 1, 2, 3), (self.sequences, self.heads, outer, elements))


def _order(operand: Operand | None) -> list[int]:
    """The dimension of the tensor for each logical one."""
    assert operand is not None
    return [number if axis is None else axis for number, axis in enumerate(operand.axes)]
