"""A graph that grows: its values, its weights, and what is drawn by chance."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

SIZES = (1, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 17, 21, 31, 33, 45, 64)
FLOATS = ("float32", "float64")


@dataclass(frozen=True)
class Value:
    """A value of the graph.

    Attributes:
        name: in the graph.
        shape: of the tensor.
        dtype: of its elements, NumPy's name.
        exact: whether every right computation gives the same bits.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    exact: bool

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def floating(self) -> bool:
        return self.dtype in FLOATS


class UnsuitableError(Exception):
    """The operator does not take this value."""


class Draw:
    """A graph that grows.

    Args:
        seed: of all that is drawn.
        kind: of the models, of which each has its own for a seed.
        opset: version of the standard that they are written in.
    """

    def __init__(self, seed: int, kind: str, opset: int) -> None:
        self.opset = opset
        self.rng = Random(f"{kind}/{seed}")
        self.numbers = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs: list[Value] = []
        self.values: list[Value] = []
        # Shapes and types of values whose operators the standard does not know.
        self.declared: dict[str, tuple[tuple[int, ...], str]] = {}
        self._names = 0

    def name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def pick(self, *choices: Any) -> Any:
        return self.rng.choice(choices)

    def axis(self, x: Value) -> int:
        """An axis, now and then counted from the end."""
        self.need(x.rank > 0)
        return self.rng.randrange(-x.rank, x.rank)

    def need(self, condition: bool) -> None:
        if not condition:
            raise UnsuitableError

    def constant(self, array: np.ndarray | np.generic | Sequence[int]) -> str:
        """A weight of the file; integers without a type are 64 bits wide."""
        typed = isinstance(array, np.ndarray | np.generic)
        held = np.asarray(array) if typed else np.array(array, np.int64)
        self.weights.append(numpy_helper.from_array(held, self.name("w")))
        return str(self.weights[-1].name)

    def array(self, shape: Sequence[int], dtype: str) -> np.ndarray:
        """Small numbers."""
        if dtype == "bool":
            return self.numbers.random(tuple(shape)) < 0.5
        if dtype in FLOATS:
            return self.numbers.uniform(-2, 2, tuple(shape)).astype(dtype)
        return self.numbers.integers(0 if dtype == "uint8" else -9, 10, tuple(shape)).astype(dtype)

    def weight(self, *shape: int, like: Value) -> str:
        """A constant of a value's type; of fractions, smaller for longer sums."""
        array = self.array(shape, like.dtype)
        if like.floating:
            array = (array / math.sqrt(max(1, math.prod(shape[1:])))).astype(like.dtype)
        return self.constant(array)

    def add(self, op: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> list[str]:
        names = [self.name("v") for _ in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, **attributes))
        return names

    def input(self, shape: Sequence[int], dtype: str) -> Value:
        """A further input of the model."""
        value = Value(self.name("x"), tuple(shape), dtype, True)
        self.inputs.append(value)
        self.values.append(value)
        return value

    def declare(self, name: str, shape: Sequence[int], dtype: str) -> None:
        """Say what an operator that is not of the standard makes."""
        self.declared[name] = tuple(shape), dtype

    def shape_of(self, weight: str) -> tuple[int, ...]:
        """The shape of a weight."""
        return tuple(next(one.dims for one in self.weights if one.name == weight))

    def other(self, x: Value) -> str:
        """Something of the same type that broadcasts to a value: a constant or an earlier value."""
        alike = [
            one.name
            for one in self.values
            if one.dtype == x.dtype
            and one.rank <= x.rank
            and all(a in (1, b) for a, b in zip(one.shape[::-1], x.shape[::-1], strict=False))
        ]
        if alike and self.rng.random() < 0.4:
            return str(self.rng.choice(alike))
        kept = self.rng.randrange(x.rank + 1)
        return self.weight(*(self.pick(1, size) for size in x.shape[kept:]), like=x)


Operator = Callable[[Draw, Value], None]
