"""Operators whose shape or axes ONNX gives as a tensor.

Where that tensor is not a constant, the shape of the output, which the model declares, says the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import numpy_helper
from tvm import relax, te, tirx

from host.importers.onnx.operators.context import (
    Attributes,
    Context,
    Converter,
    Inputs,
    bounded,
    constant,
    constant_value,
    dtype_of,
    get,
    shape_of,
)


def _reshape(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    return relax.op.reshape(inputs[0], _target(context, inputs, attributes))


def _target(context: Context, inputs: Inputs, attributes: Attributes) -> tuple[int, ...]:
    """The shape that a Reshape gives its output."""
    wanted = constant_value(get(inputs, 1)) if context.opset >= 5 else np.asarray(attributes["shape"])
    if wanted is None:
        return context.output_shape()
    data = shape_of(context, inputs[0])
    sizes = [int(size) for size in wanted.reshape(-1)]
    if not attributes.get("allowzero", 0):
        sizes = [data[index] if size == 0 else size for index, size in enumerate(sizes)]
    if -1 in sizes:
        others = int(np.prod([size for size in sizes if size != -1], dtype=np.int64))
        sizes[sizes.index(-1)] = int(np.prod(data, dtype=np.int64)) // max(others, 1)
    return tuple(sizes)


def _axes(context: Context, inputs: Inputs, attributes: Attributes) -> list[int] | None:
    """Axes of a Squeeze or Unsqueeze; None if there are none or the model computes them."""
    axes = constant_value(get(inputs, 1)) if context.opset >= 13 else attributes.get("axes")
    return None if axes is None else [int(axis) for axis in np.asarray(axes).reshape(-1)]


def _unsqueeze(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    axes, shape = _axes(context, inputs, attributes), list(shape_of(context, inputs[0]))
    if axes is None:
        return relax.op.reshape(inputs[0], context.output_shape())
    rank = len(shape) + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        shape.insert(axis, 1)
    return relax.op.reshape(inputs[0], shape)


def _squeeze(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    axes, shape = _axes(context, inputs, attributes), shape_of(context, inputs[0])
    if axes is None and get(inputs, 1) is not None:
        return relax.op.reshape(inputs[0], context.output_shape())
    dropped = (
        [i for i, size in enumerate(shape) if size == 1] if axes is None else [a % len(shape) for a in axes]
    )
    return relax.op.reshape(inputs[0], [size for i, size in enumerate(shape) if i not in dropped])


def _shape(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    shape = shape_of(context, inputs[0])
    return constant(np.array(shape[attributes.get("start", 0) : attributes.get("end")], np.int64))


def _size(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    return constant(np.array(np.prod(shape_of(context, inputs[0]), dtype=np.int64)))


def _expand(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    wanted = constant_value(inputs[1])
    if wanted is None:
        return relax.op.broadcast_to(inputs[0], context.output_shape())
    shape = np.broadcast_shapes(shape_of(context, inputs[0]), tuple(int(size) for size in wanted))
    return relax.op.broadcast_to(inputs[0], shape)


def _constant_of_shape(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    value = attributes.get("value")
    fill = np.zeros((), np.float32) if value is None else numpy_helper.to_array(value).reshape(())
    wanted = constant_value(inputs[0])
    shape = context.output_shape() if wanted is None else tuple(int(size) for size in wanted)
    return relax.op.broadcast_to(constant(fill), shape)


def _tile(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    repeats = constant_value(inputs[1])
    if repeats is not None:
        return relax.op.tile(inputs[0], [int(count) for count in repeats])
    shape = shape_of(context, inputs[0])
    factors = [whole // max(part, 1) for whole, part in zip(context.output_shape(), shape, strict=True)]
    return relax.op.tile(inputs[0], factors)


def _range(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    start, _, delta = inputs
    (count,) = context.output_shape()
    dtype = dtype_of(start)
    steps = constant(np.arange(count).astype(dtype))
    return relax.op.add(start, relax.op.multiply(steps, delta))


def _split(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    shape = shape_of(context, inputs[0])
    axis = attributes.get("axis", 0) % len(shape)
    given = constant_value(get(inputs, 1)) if context.opset >= 13 else attributes.get("split")
    if given is not None:
        sizes = [int(size) for size in given]
    elif get(inputs, 1) is not None:
        sizes = [context.output_shape(index)[axis] for index in range(len(context.outputs))]
    else:
        count = attributes.get("num_outputs", len(context.outputs))
        part = -(-shape[axis] // count)
        sizes = [min(part, shape[axis] - part * index) for index in range(count)]
    if len(sizes) == 1:
        return relax.Tuple([inputs[0]])
    if 0 in sizes:
        ends = np.cumsum(sizes)
        pieces = zip(ends - sizes, ends, strict=True)
        return [_piece(inputs[0], shape, axis, int(start), int(end)) for start, end in pieces]
    return relax.op.split(inputs[0], [int(size) for size in np.cumsum(sizes)[:-1]], axis)


def _piece(data: Any, shape: tuple[int, ...], axis: int, start: int, end: int) -> Any:
    if start == end:
        return relax.op.zeros([0 if i == axis else size for i, size in enumerate(shape)], dtype_of(data))
    return relax.op.strided_slice(data, [axis], [start], [end], [1])


def _slice(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    shape = shape_of(context, inputs[0])
    starts: np.ndarray | None
    ends: np.ndarray | None
    if context.opset < 10:
        starts, ends = np.array(attributes["starts"]), np.array(attributes["ends"])
        axes, steps = attributes.get("axes"), None
    else:
        starts, ends = constant_value(inputs[1]), constant_value(inputs[2])
        axes, steps = constant_value(get(inputs, 3)), constant_value(get(inputs, 4))
        if any(get(inputs, i) is not None and constant_value(inputs[i]) is None for i in range(1, 5)):
            return _slice_by_values(context, inputs, shape)
    if starts is None or ends is None:
        raise context.fail("no starts or ends")
    axes = range(len(starts)) if axes is None else axes
    steps = np.ones(len(starts), np.int64) if steps is None else steps
    kept: list[slice] = [slice(None)] * len(shape)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        kept[int(axis) % len(shape)] = slice(int(start), int(end), int(step))
    begin, stop, stride = zip(
        *(_bounds(part, size) for part, size in zip(kept, shape, strict=True)), strict=True
    )
    changed = [i for i, size in enumerate(shape) if (begin[i], stop[i], stride[i]) != (0, size, 1)]
    if not changed:
        return inputs[0]
    if any(begin[i] == stop[i] for i in changed):
        return relax.op.zeros(context.output_shape(), dtype_of(inputs[0]))
    picked = [[values[i] for i in changed] for values in (begin, stop, stride)]
    return relax.op.strided_slice(inputs[0], changed, *picked, assume_inbound=False)


def _bounds(part: slice, size: int) -> tuple[int, int, int]:
    """Start, end and step as relax wants them: an end of -1 would count from the end again."""
    start, stop, step = part.indices(size)
    if len(range(start, stop, step)) == 0:
        return 0, 0, 1
    return start, stop if stop >= 0 else -(size + 1), step


def _slice_by_values(context: Context, inputs: Inputs, shape: tuple[int, ...]) -> Any:
    """A slice whose starts, steps or axes the model computes; its output has the declared shape."""
    out = context.output_shape()
    extra = [value for value in (get(inputs, 3), get(inputs, 4)) if value is not None]
    has_axes, has_steps = get(inputs, 3) is not None, get(inputs, 4) is not None
    count = shape_of(context, inputs[1])[0]

    def compute(data: te.Tensor, starts: te.Tensor, *rest: te.Tensor) -> te.Tensor:
        axes = rest[0] if has_axes else None
        steps = rest[-1] if has_steps else None

        def position(dimension: int, index: Any) -> Any:
            size = tirx.IntImm("int64", shape[dimension])
            result = tirx.Cast("int64", index)
            for k in range(count):
                step = bounded(steps[k]) if steps is not None else tirx.IntImm("int64", 1)
                start = bounded(starts[k])
                start = tirx.if_then_else(start < 0, start + size, start)
                highest = tirx.if_then_else(step < 0, size - 1, size)
                start = tirx.max(tirx.min(start, highest), tirx.IntImm("int64", 0))
                moved = start + tirx.Cast("int64", index) * step
                if axes is None:
                    result = moved if k == dimension else result
                else:
                    axis = tirx.Cast("int64", axes[k])
                    here = tirx.any(axis == dimension, axis == dimension - len(shape))
                    result = tirx.if_then_else(here, moved, result)
            return tirx.max(tirx.min(result, size - 1), tirx.IntImm("int64", 0))

        return te.compute(out, lambda *at: data(*[position(d, i) for d, i in enumerate(at)]), name="slice")

    return context.compute(compute, inputs[0], inputs[1], *extra)


def _eye_like(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    from onnx import helper

    shape = shape_of(context, inputs[0])
    wanted = attributes.get("dtype")
    dtype = dtype_of(inputs[0]) if wanted is None else helper.tensor_dtype_to_np_dtype(wanted).name
    return constant(np.eye(shape[0], shape[1], k=attributes.get("k", 0)).astype(dtype))


def _trilu(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    shape = shape_of(context, inputs[0])
    offset = get(inputs, 1)
    upper = attributes.get("upper", 1)
    if 0 in shape:
        return inputs[0]
    fixed = np.zeros((), np.int64) if offset is None else constant_value(offset)
    rows, columns = np.arange(shape[-2])[:, None], np.arange(shape[-1])[None, :]
    difference = (columns - rows).astype(np.int64)
    if fixed is not None:
        k = int(fixed.reshape(-1)[0])
        kept = constant(difference >= k if upper else difference <= k)
    else:
        compare = relax.op.greater_equal if upper else relax.op.less_equal
        kept = context.emit(compare(constant(difference), offset))
    zeros = constant(np.zeros((), dtype_of(inputs[0])))
    return relax.op.where(kept, inputs[0], zeros)


CONVERTERS: dict[str, Converter] = {
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "EyeLike": _eye_like,
    "Range": _range,
    "Reshape": _reshape,
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Trilu": _trilu,
    "Unsqueeze": _unsqueeze,
}
