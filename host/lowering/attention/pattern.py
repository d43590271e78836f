"""Finds attention in a graph: a product of queries and keys, softmax, and a product with values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from host.lowering.attention.function import AttentionShape, Operand
from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Shape, Value, constant, read_once
from host.lowering.rebuild import rebuild
from targets import HardwareModel

OPERATION = "attention"
# With fewer rows of queries, keys are read once or a few times: packing them costs as much as the products.
_FEWEST_ROWS = 16
# With fewer columns, what is done once a row costs more than scores in a cache save: AVX2, 3 x 64 windows
# of 49 rows and columns took 1.4 times as long as three functions, heads with 128 to 1500 columns 0.54 to
# 0.94.
_FEWEST_COLUMNS = 64
# What a mask adds at least to a score that has no weight.
_EXCLUDED = -1e4


def fuse_attention(graph: Graph, hardware: HardwareModel) -> Graph:
    """An equal graph in which attention on a CPU is one operation, with the transposes around it."""
    if hardware.gpu is not None:
        return graph
    private = read_once(graph)

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        found = None
        if node.op == "matmul" and node.output.dtype == "float32":
            both = tuple(_Both(old, new) for old, new in zip(node.inputs, inputs, strict=True))
            found = _attention(builder, node.output.shape, both, private, hardware.lanes)
        elif node.op == "transpose":
            found = _transposed(builder, _Both(node.inputs[0], inputs[0]), node, private)
        return builder.copy(node, inputs) if found is None else found

    return rebuild(graph, rule)


@dataclass(frozen=True)
class _Both:
    """A value of the graph before the pass, whose readers are known, and what it is after."""

    old: Value
    new: Value

    @property
    def op(self) -> str:
        """The operation that makes it before and after; "" where they differ."""
        before, after = self.old.producer, self.new.producer
        return before.op if before is not None and after is not None and before.op == after.op else ""

    @property
    def inputs(self) -> tuple[_Both, ...]:
        """The inputs of the operation that makes this value, each in both graphs."""
        assert self.old.producer is not None and self.new.producer is not None
        pairs = zip(self.old.producer.inputs, self.new.producer.inputs, strict=True)
        return tuple(_Both(old, new) for old, new in pairs)


_ReadOnce = Callable[[Value], bool]


@dataclass(frozen=True)
class _Scores:
    """What softmax is taken of: scale Q K + mask.

    Attributes:
        query: (..., M, D).
        key: (..., D, N).
        shape: (..., M, N), as the product makes it.
        scale: a factor.
        masks: each with the shape that it broadcasts to.
    """

    query: Value
    key: Value
    shape: Shape
    scale: float
    masks: tuple[tuple[Value, Shape], ...]


def _attention(
    builder: Builder, shape: Shape, inputs: tuple[_Both, ...], read_once: _ReadOnce, lanes: int
) -> Value | None:
    """The operation in place of a product of the powers (..., M, N) and values (..., N, E)."""
    weights, value = _without_views(inputs[0], read_once), inputs[1].new
    if weights.op != "softmax" or not read_once(weights.old):
        return None
    scores = _scores(weights.inputs[0], read_once)
    if scores is None or shape[-2] < _FEWEST_ROWS or scores.shape[-1] < _FEWEST_COLUMNS:
        return None
    batch = tuple(_long(shape[:-2]))
    if scores.shape[-2] != shape[-2] or batch != tuple(_long(scores.shape[:-2])):
        return None
    depth, columns = scores.key.shape[-2:]
    extents = AttentionShape.of(batch, shape[-2], columns, depth, shape[-1], lanes)
    mask = _mask(builder, scores)
    if extents is None or (scores.masks and mask is None):
        return None
    query, query_operand = _operand(scores.query, (*scores.shape[:-2], *scores.query.shape[-2:]))
    key, key_operand = _operand(scores.key, (*scores.shape[:-2], *scores.key.shape[-2:]))
    *heads, element, column = key_operand.axes
    value, value_operand = _operand(value, (*shape[:-2], *value.shape[-2:]))
    operands = {
        "query": query_operand,
        "key": replace(key_operand, axes=(*heads, column, element)),
        "value": value_operand,
        "mask": None if mask is None else mask[1],
        "output": Operand(_kept(shape), shape),
    }
    tensors = [query, key, value] if mask is None else [query, key, value, mask[0]]
    return builder.one(OPERATION, tensors, shape, "float32", extents=extents, scale=scores.scale, **operands)


def _without_views(value: _Both, read_once: _ReadOnce) -> _Both:
    """What is seen with other dimensions before the last."""
    while value.op == "reshape" and read_once(value.old):
        source = value.inputs[0]
        if source.new.shape[-1] != value.new.shape[-1]:
            break
        value = source
    return value


def _scores(value: _Both, read_once: _ReadOnce) -> _Scores | None:
    """The parts of what softmax is taken of, from the last operation back."""
    scale = 1.0
    masks: list[tuple[Value, Shape]] = []
    while read_once(value.old):
        value = _without_views(value, read_once)
        if value.op == "matmul" and read_once(value.old):
            query, key = (one.new for one in value.inputs)
            return _Scores(query, key, value.new.shape, scale, tuple(masks))
        if value.op == "multiply":
            scaled, factor = sorted(value.inputs, key=lambda one: one.new.is_constant)
            number = factor.new.scalar()
            if number is None or scaled.new.shape != value.new.shape:
                return None
            scale, value = scale * number, scaled
        elif value.op == "add" and scale == 1.0:
            scored, mask = sorted(value.inputs, key=lambda one: not _from_product(one))
            if scored.new.shape != value.new.shape:
                return None
            masks.append((mask.new, value.new.shape))
            value = scored
        elif value.op == "where" and scale == 1.0:
            condition, *choices = value.inputs
            found = _excluding(condition.new, choices[0].new, choices[1].new)
            scored = choices[0] if choices[1].new.is_constant else choices[1]
            if found is None or scored.new.shape != value.new.shape:
                return None
            masks.append((found, value.new.shape))
            value = scored
        else:
            return None
    return None


def _from_product(value: _Both) -> bool:
    """Whether a value is a product of two matrices, scaled and masked."""
    while value.op in ("reshape", "multiply", "add", "where"):
        inputs = value.inputs[1:] if value.op == "where" else value.inputs
        inputs = tuple(one for one in inputs if not one.new.is_constant)
        if len(inputs) != 1:
            return any(_from_product(one) for one in inputs)
        value = inputs[0]
    return value.op == "matmul"


def _excluding(condition: Value, chosen: Value, other: Value) -> Value | None:
    """What to add in place of a choice between scores and a number so low that the score has no weight."""
    if condition.data is None:
        return None
    low, kept = (other.scalar(), condition.data) if other.is_constant else (chosen.scalar(), ~condition.data)
    # A row without any score would be the mean of all values, and is not.
    if low is None or low > _EXCLUDED or not kept.any(axis=-1).all():
        return None
    return constant(np.where(kept, np.float32(0), np.float32(low)))


def _mask(builder: Builder, scores: _Scores) -> tuple[Value, Operand] | None:
    """What is added to the scores, as one tensor; None without a mask, or if masks have different shapes."""
    if not scores.masks:
        return None
    (mask, shape), *others = scores.masks
    for other, seen in others:
        if seen != shape:
            return None
        mask = builder.binary("add", mask, other)
    if shape[-2:] != scores.shape[-2:] or _long(shape) != _long(scores.shape) or mask.dtype != "float32":
        return None
    return _operand(mask, shape)


def _kept(shape: Shape) -> tuple[int, ...]:
    """The logical dimensions: rows and elements, and of those before them the ones with several elements."""
    rank = len(shape)
    return (*(axis for axis in range(rank - 2) if shape[axis] != 1), rank - 2, rank - 1)


def _operand(value: Value, shape: Shape) -> tuple[Value, Operand]:
    """The tensor to read in place of one that broadcasts to `shape`: that before transposes and views."""
    before = len(shape) - len(value.shape)
    axes: list[int | None] = [
        axis - before if axis >= before and value.shape[axis - before] == shape[axis] else None
        for axis in _kept(shape)
    ]
    while (producer := value.producer) is not None:
        source = producer.inputs[0] if producer.inputs else value
        if producer.op == "transpose":
            order = producer.attrs["axes"]
            axes = [None if axis is None else order[axis] for axis in axes]
        elif producer.op == "reshape" and _long(source.shape) == _long(value.shape):
            places = dict(zip(_several(value.shape), _several(source.shape), strict=True))
            axes = [None if axis is None else places.get(axis) for axis in axes]
        else:
            break
        value = source
    return value, Operand(tuple(axes), value.shape)


def _several(shape: Shape) -> list[int]:
    """The dimensions that have several elements."""
    return [axis for axis, size in enumerate(shape) if size != 1]


def _long(shape: Shape) -> list[int]:
    """The extents of the dimensions that are longer than 1."""
    return [size for size in shape if size != 1]


def _transposed(builder: Builder, value: _Both, node: Node, read_once: _ReadOnce) -> Value | None:
    """The operation that writes its result transposed, in place of a transpose that alone reads it."""
    seen = value.new.shape
    if value.op == "reshape" and read_once(value.old):
        value = value.inputs[0]
    made = value.new.producer
    if made is None or made.op != OPERATION or not read_once(value.old):
        return None
    output: Operand = made.attrs["output"]
    if _long(seen) != list(output.logical) or output.axes != _kept(output.shape):
        return None
    order = node.attrs["axes"]
    axes = tuple(order.index(axis) for axis in _several(seen))
    attrs = {**made.attrs, "output": Operand(axes, node.output.shape)}
    return builder.one(OPERATION, made.inputs, node.output.shape, "float32", **attrs)
