"""Operators that sort, pick or place elements."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, te, tirx

from host.importers.onnx.operators.context import (
    Attributes,
    Context,
    Converter,
    Inputs,
    bounded,
    constant,
    constant_value,
    convert_with_tvm,
    dtype_of,
    get,
    known,
    scalar,
    shape_of,
)
from host.tensor_ir.opaque import opaque

# Of one model: a place is found by comparing it with every element.
_MOST_COMPARISONS = 1 << 30
# Of a OneHot, whose numbers are a constant.
_MOST_CLASSES = 1 << 24


def wrap_negative(context: Context, indices: Any, size: int) -> Any:
    """Indices with the negative ones, which count from the end, made positive."""
    values = constant_value(indices)
    if values is not None:
        return constant(np.where(values < 0, values + size, values).astype(values.dtype))
    dtype = dtype_of(indices)
    if dtype.startswith("uint"):
        return indices
    zero, extent = scalar(0, dtype), scalar(size, dtype)
    shifted = context.emit(relax.op.add(indices, extent))
    return context.emit(relax.op.where(relax.op.less(indices, zero), shifted, indices))


def _gather(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    data, indices = inputs[0], inputs[1]
    shape = shape_of(context, data)
    axis = attributes.get("axis", 0) % len(shape)
    indices = wrap_negative(context, indices, shape[axis])
    # "clip" keeps an index out of range, which only a wrong input has, from reading foreign memory.
    return relax.op.take(data, indices, axis, mode="clip")


def _scatter(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    """ScatterElements before opset 11; TVM's does not count from the end."""
    data, indices, updates = inputs
    shape = shape_of(context, data)
    counted = wrap_negative(context, indices, shape[attributes.get("axis", 0) % len(shape)])
    return convert_with_tvm(context, [data, counted, updates], attributes)


def _topk(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    shape = shape_of(context, inputs[0])
    axis = attributes.get("axis", -1) % len(shape)
    if context.opset < 10:
        count = int(attributes["k"])
    else:
        given = constant_value(inputs[1])
        count = context.output_shape()[axis] if given is None else int(given.reshape(-1)[0])
    largest = bool(attributes.get("largest", 1))
    if not count:  # which relax takes for all
        none = context.emit(relax.op.strided_slice(inputs[0], [axis], [0], [0]))
        return [none, context.emit(relax.op.astype(none, "int64"))]
    return relax.op.topk(inputs[0], count, axis, "both", largest, "int64")


def _reverse_sequence(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    time, batch = attributes.get("time_axis", 0), attributes.get("batch_axis", 1)
    return relax.op.reverse_sequence(inputs[0], inputs[1], time, batch)


def _data_dependent(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    raise context.fail("how many results it has depends on the values")


def _non_zero(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    """The places of as many elements as the model declares, one row for each dimension."""
    shape = shape_of(context, inputs[0])
    places = _places(context, inputs[0], _declared(context)[-1])
    rows = [np.prod(shape[axis + 1 :], dtype=np.int64) for axis in range(len(shape))]
    steps, sizes = (constant(np.array(values, np.int64).reshape(-1, 1)) for values in (rows, shape))
    return relax.op.floor_mod(context.emit(relax.op.floor_divide(places, steps)), sizes)


def _compress(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    """As many slices, or elements, as the model declares, where a condition holds."""
    data, axis, out = inputs[0], attributes.get("axis"), _declared(context)
    if axis is None:
        data = context.emit(relax.op.reshape(data, [int(np.prod(shape_of(context, data), dtype=np.int64))]))
        axis = 0
    axis %= len(shape_of(context, data))
    return relax.op.take(data, _places(context, inputs[1], out[axis]), axis, mode="clip")


def _declared(context: Context) -> tuple[int, ...]:
    if context.output_shapes[0] is None:
        raise context.fail("how many results it has depends on the values")
    return context.output_shapes[0]


def _places(context: Context, data: Any, count: int) -> Any:
    """Where the first `count` elements are that are not zero, in the order of memory (count) int64."""
    size = int(np.prod(shape_of(context, data), dtype=np.int64))
    if size * count > _MOST_COMPARISONS:
        raise context.fail(f"finding {count} of {size} elements has no conversion")
    flat = context.emit(relax.op.reshape(data, [size]))
    if dtype_of(data) != "bool":
        flat = context.emit(relax.op.not_equal(flat, scalar(0, dtype_of(data))))
    found = context.emit(relax.op.cumsum(context.emit(relax.op.astype(flat, "int64")), 0))

    def compute(total: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, size), name="k")

        def element(n: Any) -> Any:
            # Element n is behind all elements up to which there are n or fewer.
            return te.sum(tirx.Cast("int64", total[k] <= tirx.Cast("int64", n)), axis=k)

        return te.compute((count,), element, name="place")

    places = context.compute(compute, found)
    return context.emit(relax.op.minimum(places, scalar(size - 1, "int64")))


def _tensor_scatter(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    """A cache with new entries written at each sequence's position."""
    cache, update = inputs[0], inputs[1]
    shape, new = shape_of(context, cache), shape_of(context, update)
    axis = attributes.get("axis", -2) % len(shape)
    circular = attributes.get("mode", b"linear") == b"circular"
    start = get(inputs, 2)
    if start is None:
        start = relax.op.broadcast_to(scalar(0, "int64"), [shape[0]])

    def compute(past: te.Tensor, fresh: te.Tensor, begin: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            offset = tirx.Cast("int64", at[axis]) - bounded(begin(at[0]))
            if circular:
                offset = tirx.floormod(offset, tirx.IntImm("int64", shape[axis]))
            written = tirx.all(offset >= 0, offset < new[axis])
            inside = tirx.max(tirx.min(offset, new[axis] - 1), 0)
            return tirx.Select(opaque(written), fresh(*at[:axis], inside, *at[axis + 1 :]), past(*at))

        return te.compute(shape, element, name="scatter")

    return context.compute(compute, cache, update, start)


def _one_hot(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    """A comparison with each class: TVM's knows constant numbers alone, and miscounts some negative axes."""
    indices, _, values = inputs
    depth = known(context, inputs, 1, "depth")
    if depth is None:
        raise context.fail("its depth is missing")
    count, shape = int(depth.reshape(-1)[0]), shape_of(context, indices)
    if not 0 < count <= _MOST_CLASSES:
        raise context.fail(f"it has a depth of {count}")
    axis = attributes.get("axis", -1) % (len(shape) + 1)
    whole = context.emit(relax.op.astype(indices, "int64"))
    counted = context.emit(relax.op.expand_dims(wrap_negative(context, whole, count), axis))
    classes = np.arange(count, dtype=np.int64).reshape(-1, *[1] * (len(shape) - axis))
    here = context.emit(relax.op.equal(counted, constant(classes)))
    off, on = (context.emit(relax.op.take(values, scalar(k, "int64"), 0, mode="clip")) for k in (0, 1))
    return relax.op.where(here, on, off)


CONVERTERS: dict[str, Converter] = {
    "AllClassNMS": _data_dependent,
    "Compress": _compress,
    "Gather": _gather,
    "NonZero": _non_zero,
    "OneHot": _one_hot,
    "ReverseSequence": _reverse_sequence,
    "Scatter": _scatter,
    "TensorScatter": _tensor_scatter,
    "TopK": _topk,
    "Unique": _data_dependent,
}
