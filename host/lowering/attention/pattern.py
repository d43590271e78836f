"""Finds attention in a graph: a product of queries and keys, softmax, and a product with values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from host.lowering.attention.choice import MatrixExtents, is_faster_as_one
from host.lowering.attention.function import AttentionShape, Operand
from host.lowering.attention.masks import Choice, as_mask, causal_offset, excluding
from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Shape, Value, read_once
from host.lowering.rebuild import rebuild
from targets import GpuModel, HardwareModel

# On CPUs, and on GPUs that multiply matrices.
OPERATION, MATRIX_OPERATION = "attention", "matrix_attention"
# With fewer rows of queries, keys are read once or a few times: packing them costs as much as the products.
_FEWEST_ROWS = 16
# With fewer columns, what is done once a row costs more than scores in a cache save: AVX2, 3 x 64 windows
# of 49 rows and columns took 1.4 times as long as three functions, heads with 128 to 1500 columns 0.54 to
# 0.94.
_FEWEST_COLUMNS = 64


def fuse_attention(graph: Graph, hardware: HardwareModel) -> Graph:
    """An equal graph in which attention on a CPU is one operation, with the transposes around it."""
    if hardware.gpu is not None:
        return graph
    return _fused(graph, lambda builder, found: _on_vectors(builder, found, hardware.lanes))


def fuse_on_matrices(graph: Graph, hardware: HardwareModel) -> Graph:
    """An equal graph in which attention on a GPU with products of matrices of halves is one operation.

    It is left as it is where three kernels are estimated to be faster.
    """
    gpu = hardware.gpu
    if gpu is None or not gpu.matrix_fp16_per_cycle:
        return graph
    return _fused(graph, lambda builder, found: _on_matrices(builder, found, gpu))


def _fused(graph: Graph, make: Callable[[Builder, _Found], Value | None]) -> Graph:
    """The graph with what `make` makes of each attention; None leaves one as it is."""
    private = read_once(graph)

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        made = None
        if node.op == "matmul" and node.output.dtype == "float32":
            both = tuple(_Both(old, new) for old, new in zip(node.inputs, inputs, strict=True))
            found = _attention(node.output.shape, both, private)
            made = None if found is None else make(builder, found)
        elif node.op == "transpose":
            made = _transposed(builder, _Both(node.inputs[0], inputs[0]), node, private)
        return builder.copy(node, inputs) if made is None else made

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
        masks: each with the shape that it broadcasts to; a choice is a condition that is computed.
    """

    query: Value
    key: Value
    shape: Shape
    scale: float
    masks: tuple[tuple[Value | Choice, Shape], ...]


@dataclass(frozen=True)
class _Found:
    """An attention.

    Attributes:
        scores: what softmax is taken of.
        value: (..., N, E).
        shape: of the result.
    """

    scores: _Scores
    value: Value
    shape: Shape

    @property
    def batch(self) -> Shape:
        """Extents of the dimensions before rows and elements, without those of one element."""
        return tuple(_long(self.shape[:-2]))


def _attention(shape: Shape, inputs: tuple[_Both, ...], read_once: _ReadOnce) -> _Found | None:
    """The attention that a product of the powers (..., M, N) and values (..., N, E) ends, if it does."""
    weights, value = _without_views(inputs[0], read_once), inputs[1].new
    if weights.op != "softmax" or not read_once(weights.old):
        return None
    scores = _scores(weights.inputs[0], read_once)
    if scores is None or shape[-2] < _FEWEST_ROWS:
        return None
    found = _Found(scores, value, shape)
    same = scores.shape[-2] == shape[-2] and found.batch == tuple(_long(scores.shape[:-2]))
    return found if same else None


def _on_vectors(builder: Builder, found: _Found, lanes: int) -> Value | None:
    """The operation of CPUs."""
    scores, shape = found.scores, found.shape
    depth, columns = scores.key.shape[-2:]
    if columns < _FEWEST_COLUMNS or any(isinstance(one, Choice) for one, _ in scores.masks):
        return None
    extents = AttentionShape.of(found.batch, shape[-2], columns, depth, shape[-1], lanes)
    mask = _mask(builder, scores)
    if extents is None or (scores.masks and mask is None):
        return None
    tensors, operands = _operands(found, mask)
    scale = scores.scale
    for place, name in enumerate(("query", "key")):
        operand = operands[name]
        assert operand is not None
        tensors[place], operands[name], factor = _unscaled(builder, tensors[place], operand)
        scale *= factor
    return builder.one(OPERATION, tensors, shape, "float32", extents=extents, scale=scale, **operands)


def _on_matrices(builder: Builder, found: _Found, gpu: GpuModel) -> Value | None:
    """The operation of GPUs."""
    scores, shape = found.scores, found.shape
    depth, columns = scores.key.shape[-2:]
    extents = MatrixExtents(math.prod(found.batch), shape[-2], columns, depth, shape[-1])
    if scores.scale <= 0 or not is_faster_as_one(extents, gpu):
        return None
    causal = None
    if len(scores.masks) == 1 and isinstance(scores.masks[0][0], Value):
        causal = causal_offset(scores.masks[0][0], scores.shape[-2], columns)
    mask = None if causal is not None else _mask(builder, scores)
    if scores.masks and mask is None and causal is None:
        return None
    tensors, operands = _operands(found, mask)
    attrs = {**operands, "scale": scores.scale, "causal": causal}
    return builder.one(MATRIX_OPERATION, tensors, shape, "float32", **attrs)


def _operands(
    found: _Found, mask: tuple[Value, Operand] | None
) -> tuple[list[Value], dict[str, Operand | None]]:
    """The tensors that the operation reads, and how it reads and writes."""
    scores, shape = found.scores, found.shape
    query, query_operand = _operand(scores.query, (*scores.shape[:-2], *scores.query.shape[-2:]))
    key, key_operand = _operand(scores.key, (*scores.shape[:-2], *scores.key.shape[-2:]))
    *heads, element, column = key_operand.axes
    value, value_operand = _operand(found.value, (*shape[:-2], *found.value.shape[-2:]))
    operands = {
        "query": query_operand,
        "key": replace(key_operand, axes=(*heads, column, element)),
        "value": value_operand,
        "mask": None if mask is None else mask[1],
        "output": Operand(_kept(shape), shape),
    }
    return [query, key, value] if mask is None else [query, key, value, mask[0]], operands


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
    masks: list[tuple[Value | Choice, Shape]] = []
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
            found = excluding(condition.new, choices[0].new, choices[1].new)
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


def _mask(builder: Builder, scores: _Scores) -> tuple[Value, Operand] | None:
    """What is added to the scores, as one tensor; None without a mask, or if masks have different shapes."""
    if not scores.masks:
        return None
    (first, shape), *others = scores.masks
    mask = as_mask(builder, first)
    for other, seen in others:
        if seen != shape:
            return None
        mask = builder.binary("add", mask, as_mask(builder, other))
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
    return _before_views(value, axes)


def _unscaled(builder: Builder, value: Value, operand: Operand) -> tuple[Value, Operand, float]:
    """What is multiplied by numbers to make the tensor to read, how it is read, and the numbers' product."""
    scale = 1.0
    while (scaled := _before_reshapes(value).producer) is not None and scaled.op == "multiply":
        source, factor = sorted(scaled.inputs, key=lambda one: one.is_constant)
        number = factor.scalar()
        if number is None or source.shape != scaled.output.shape:
            break
        scale *= number
        value, operand = _before_views(builder.reshape(source, value.shape), operand.axes)
    return value, operand, scale


def _before_reshapes(value: Value) -> Value:
    while (producer := value.producer) is not None and producer.op == "reshape":
        value = producer.inputs[0]
    return value


def _before_views(value: Value, dimensions: Sequence[int | None]) -> tuple[Value, Operand]:
    """The tensor before transposes and views, whose `dimensions` are the logical ones."""
    axes = list(dimensions)
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
    if made is None or made.op not in (OPERATION, MATRIX_OPERATION) or not read_once(value.old):
        return None
    output: Operand = made.attrs["output"]
    if _long(seen) != list(output.logical) or output.axes != _kept(output.shape):
        return None
    order = node.attrs["axes"]
    axes = tuple(order.index(axis) for axis in _several(seen))
    attrs = {**made.attrs, "output": Operand(axes, node.output.shape)}
    return builder.one(made.op, made.inputs, node.output.shape, "float32", **attrs)
