"""Finds attention in a graph: a product of queries and keys, softmax, and a product with values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from host.lowering.attention.choice import MatrixExtents, is_faster_as_one
from host.lowering.attention.function import AttentionShape, Operand
from host.lowering.attention.masks import Choice, causal_offset, joined
from host.lowering.attention.scores import (
    READING,
    Both,
    ReadOnce,
    Scores,
    plain_scores,
    rounded_scores,
    without_rounding,
)
from host.lowering.attention.steps import Step
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
            both = tuple(Both(old, new) for old, new in zip(node.inputs, inputs, strict=True))
            found = _attention(node.output.shape, both, private)
            made = None if found is None else make(builder, found)
        elif node.op == "transpose":
            made = _transposed(builder, Both(node.inputs[0], inputs[0]), node, private)
        else:
            made = _finished(builder, node, inputs, private)
        return builder.copy(node, inputs) if made is None else made

    return rebuild(graph, rule)


@dataclass(frozen=True)
class _Found:
    """An attention.

    Attributes:
        scores: what softmax is taken of.
        value: (..., N, E).
        shape: of the result.
        steps: what a quantised file computes of each weight.
    """

    scores: Scores
    value: Value
    shape: Shape
    steps: tuple[Step, ...] = ()

    @property
    def batch(self) -> Shape:
        """Extents of the dimensions before rows and elements, without those of one element."""
        return tuple(_long(self.shape[:-2]))


def _attention(shape: Shape, inputs: tuple[Both, ...], read_once: ReadOnce) -> _Found | None:
    """The attention that a product of the powers (..., M, N) and values (..., N, E) ends, if it does."""
    weights, steps = without_rounding(inputs[0], read_once)
    if weights.op != "softmax" or not read_once(weights.old):
        return None
    scores = (rounded_scores if steps else plain_scores)(weights.inputs[0], read_once)
    if scores is None or shape[-2] < _FEWEST_ROWS:
        return None
    found = _Found(scores, inputs[1].new, shape, steps)
    same = scores.shape[-2] == shape[-2] and found.batch == tuple(_long(scores.shape[:-2]))
    same = same and all(_long(seen) == _long(scores.shape) for _, seen in scores.factors)
    return found if same else None


def _on_vectors(builder: Builder, found: _Found, lanes: int) -> Value | None:
    """The operation of CPUs."""
    scores, shape = found.scores, found.shape
    depth, columns = scores.key.shape[-2:]
    if columns < _FEWEST_COLUMNS or any(_is_computed(one) for one, _ in scores.masks):
        return None
    extents = AttentionShape.of(found.batch, shape[-2], columns, depth, shape[-1], lanes)
    mask = _mask(builder, scores)
    if extents is None or (scores.masks and mask is None):
        return None
    tensors, operands = _operands(builder, found, mask)
    scale = scores.scale
    for place, name in enumerate(("query", "key")):
        operand = operands[name]
        assert operand is not None
        tensors[place], operands[name], factor = _unscaled(builder, tensors[place], operand)
        scale *= factor
    attrs = {"scored": scores.steps, "weighed": found.steps, **operands}
    if found.steps:
        for place, name in enumerate(("query", "key", "value")):
            operand = operands[name]
            assert operand is not None
            tensors[place], attrs[name] = _of_bytes(builder, tensors[place], operand)
    return builder.one(OPERATION, tensors, shape, "float32", extents=extents, scale=scale, **attrs)


def _on_matrices(builder: Builder, found: _Found, gpu: GpuModel) -> Value | None:
    """The operation of GPUs."""
    scores, shape = found.scores, found.shape
    if found.steps:
        return None
    depth, columns = scores.key.shape[-2:]
    extents = MatrixExtents(math.prod(found.batch), shape[-2], columns, depth, shape[-1])
    if scores.scale <= 0 or not is_faster_as_one(extents, gpu):
        return None
    mask = _mask(builder, scores)
    if scores.masks and mask is None:
        return None
    causal = None if mask is None else causal_offset(mask[0], scores.shape[-2], columns)
    mask = mask if causal is None else None
    tensors, operands = _operands(builder, found, mask)
    attrs = {**operands, "scale": scores.scale, "causal": causal}
    return builder.one(MATRIX_OPERATION, tensors, shape, "float32", **attrs)


def _operands(
    builder: Builder, found: _Found, mask: tuple[Value, Operand] | None
) -> tuple[list[Value], dict[str, Operand | None]]:
    """The tensors that the operation reads, and how it reads and writes."""
    scores, shape = found.scores, found.shape
    query, query_operand = _operand(_scaled(builder, scores), (*scores.shape[:-2], *scores.query.shape[-2:]))
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


def _mask(builder: Builder, scores: Scores) -> tuple[Value, Operand] | None:
    """What is added to the scores, as one tensor; None without a mask, or if masks have different shapes."""
    if not scores.masks:
        return None
    shape = scores.masks[0][1]
    if any(_long(seen) != _long(shape) for _, seen in scores.masks):
        return None
    # From the last operation back: scores meet the last one first.
    mask = joined(builder, [_mask_seen_as(builder, one, seen, shape) for one, seen in reversed(scores.masks)])
    if mask is None:
        return None
    if shape[-2:] != scores.shape[-2:] or _long(shape) != _long(scores.shape):
        return None
    if mask.dtype != "float32" and not scores.steps:
        return None
    tensor, operand = _operand(mask, shape)
    return tensor, replace(operand, dtype=tensor.dtype)


def _is_computed(mask: Value | Choice) -> bool:
    """Whether it is a choice whose condition is not known."""
    return isinstance(mask, Choice) and mask.condition.data is None


def _mask_seen_as(builder: Builder, mask: Value | Choice, seen: Shape, shape: Shape) -> Value | Choice:
    """A mask of scores of the shape `seen` as one of `shape`, see `_seen_as`."""
    if isinstance(mask, Value):
        return mask if seen == shape else _seen_as(builder, mask, seen, shape)
    condition = mask.condition if seen == shape else _seen_as(builder, mask.condition, seen, shape)
    return replace(mask, condition=condition)


def _scaled(builder: Builder, scores: Scores) -> Value:
    """The queries times what the scores of each head are multiplied by."""
    query = scores.query
    for factor, seen in scores.factors:
        query = builder.binary("multiply", query, _seen_as(builder, factor, seen, scores.shape))
    return query


def _seen_as(builder: Builder, value: Value, seen: Shape, shape: Shape) -> Value:
    """What broadcasts to `seen` as what broadcasts to `shape`: alike but for dimensions of 1."""
    extents = (1,) * (len(seen) - len(value.shape)) + value.shape
    placed = [1] * len(shape)
    for place, axis in zip(_several(shape), _several(seen), strict=True):
        placed[place] = extents[axis]
    return builder.reshape(value, placed)


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


def _of_bytes(builder: Builder, value: Value, operand: Operand) -> tuple[Value, Operand]:
    """The bytes that stand for a tensor to read, and how they are read; another tensor stays."""
    node = _before_reshapes(value).producer
    step = Step.of(node, node.inputs[0]) if node is not None and node.op == READING else None
    if node is None or step is None:
        return value, operand
    source, before = _before_views(builder.reshape(node.inputs[0], value.shape), operand.axes)
    return source, replace(before, dtype=source.dtype, steps=(step,))


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


def _finished(builder: Builder, node: Node, inputs: tuple[Value, ...], read_once: ReadOnce) -> Value | None:
    """The operation of a quantised file with what is computed of each element of its result."""
    if not node.spec.is_elementwise:
        return None
    tensors = [both for both in map(Both, node.inputs, inputs) if both.new.data is None]
    made = tensors[0].new.producer if len(tensors) == 1 else None
    if made is None or made.op != OPERATION or not made.attrs["weighed"] or not read_once(tensors[0].old):
        return None
    step = Step.of(node, tensors[0].old)
    if step is None:
        return None
    output: Operand = made.attrs["output"]
    if output.dtype != "float32":
        return None
    written = replace(output, dtype=step.dtype, steps=(*output.steps, step))
    attrs = {**made.attrs, "output": written}
    return builder.one(made.op, made.inputs, node.output.shape, step.dtype, **attrs)


def _transposed(builder: Builder, value: Both, node: Node, read_once: ReadOnce) -> Value | None:
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
    attrs = {**made.attrs, "output": replace(output, axes=axes, shape=node.output.shape)}
    return builder.one(made.op, made.inputs, node.output.shape, node.output.dtype, **attrs)
