"""Normalisations, and those of their outputs that training wants."""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import relax

from host.importers.onnx.operators.context import (
    Attributes,
    Context,
    Converter,
    Inputs,
    dtype_of,
    get,
    scalar,
    shape_of,
)


def _layer_norm(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    data, scale, bias = inputs[0], get(inputs, 1), get(inputs, 2)
    shape = shape_of(context, data)
    axis = attributes.get("axis", -1) % len(shape)
    axes = list(range(axis, len(shape)))
    epsilon = float(attributes.get("epsilon", 1e-5))
    dtype = dtype_of(data)
    plain = [name for name in context.outputs if name] == [context.outputs[0]]
    if plain and bias is not None and shape_of(context, scale) == shape_of(context, bias) == shape[axis:]:
        return relax.op.nn.layer_norm(data, scale, bias, axes, epsilon)
    value = context.emit(relax.op.astype(data, "float32"))
    mean = context.emit(relax.op.mean(value, axes, True))
    centred = context.emit(relax.op.subtract(value, mean))
    variance = context.emit(relax.op.mean(relax.op.multiply(centred, centred), axes, True))
    inverse = context.emit(relax.op.rsqrt(relax.op.add(variance, relax.const(epsilon, "float32"))))
    normalised = context.emit(relax.op.astype(relax.op.multiply(centred, inverse), dtype))
    result = context.emit(relax.op.multiply(normalised, scale))
    if bias is not None:
        result = context.emit(relax.op.add(result, bias))
    return [result, mean, inverse][: len(context.outputs)]


def _rms_norm(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    data, scale = inputs[0], inputs[1]
    shape = shape_of(context, data)
    axis = attributes.get("axis", -1) % len(shape)
    axes = list(range(axis, len(shape)))
    epsilon = relax.const(float(attributes.get("epsilon", 1e-5)), "float32")
    value = context.emit(relax.op.astype(data, "float32"))
    square = context.emit(relax.op.mean(relax.op.multiply(value, value), axes, True))
    inverse = context.emit(relax.op.rsqrt(relax.op.add(square, epsilon)))
    normalised = relax.op.astype(relax.op.multiply(value, inverse), dtype_of(data))
    return relax.op.multiply(normalised, scale)


def _batch_norm(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    data, scale, bias, mean, variance = inputs[:5]
    if len(shape_of(context, data)) < 2:
        raise context.fail("data of one dimension has no channels")
    epsilon = float(attributes.get("epsilon", 1e-5))
    if attributes.get("training_mode", 0):
        return _batch_norm_training(context, inputs, attributes)
    if len({dtype_of(value) for value in inputs[:5]}) > 1:
        dtype = dtype_of(data)
        scale, bias, mean, variance = (
            context.emit(relax.op.astype(value, dtype)) for value in (scale, bias, mean, variance)
        )
    result = relax.op.nn.batch_norm(data, scale, bias, mean, variance, 1, epsilon, training=False)
    return [context.emit(relax.TupleGetItem(context.emit(result), 0))]


def _batch_norm_training(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    """Normalised by the batch's own statistics, with the running ones moved towards them."""
    data, scale, bias, mean, variance = inputs[:5]
    shape = shape_of(context, data)
    axes = [axis for axis in range(len(shape)) if axis != 1]
    channel = [-1 if axis == 1 else 1 for axis in range(len(shape))]
    dtype, momentum = dtype_of(data), float(attributes.get("momentum", 0.9))

    def spread(value: Any) -> Any:
        return relax.op.reshape(value, [size if size != -1 else shape[1] for size in channel])

    batch_mean = context.emit(relax.op.mean(data, axes, False))
    centred = context.emit(relax.op.subtract(data, spread(batch_mean)))
    batch_variance = context.emit(relax.op.mean(relax.op.multiply(centred, centred), axes, False))
    epsilon = relax.const(float(attributes.get("epsilon", 1e-5)), dtype)
    factor = context.emit(relax.op.multiply(scale, relax.op.rsqrt(relax.op.add(batch_variance, epsilon))))
    result = context.emit(relax.op.add(relax.op.multiply(centred, spread(factor)), spread(bias)))

    def moved(running: Any, batch: Any) -> Any:
        kept = relax.op.multiply(running, relax.const(momentum, dtype))
        return context.emit(relax.op.add(kept, relax.op.multiply(batch, relax.const(1 - momentum, dtype))))

    results = [result, moved(mean, batch_mean), moved(variance, batch_variance)]
    return results[: len(context.outputs)]


def _lp_norm(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    data, axis = inputs[0], attributes.get("axis", -1)
    if attributes.get("p", 2) == 1:
        size = context.emit(relax.op.sum(relax.op.abs(data), axis, True))
    else:
        size = context.emit(relax.op.sqrt(relax.op.sum(relax.op.multiply(data, data), axis, True)))
    zero = relax.const(0.0, dtype_of(data))
    nothing = context.emit(relax.op.equal(size, zero))
    divisor = context.emit(relax.op.where(nothing, relax.const(1.0, dtype_of(data)), size))
    return relax.op.divide(data, divisor)


def _local_response(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    """Each element by a power of the mean square of its neighbours along the channels, 0 beyond the ends.

    An even number of neighbours has one more behind the element.
    """
    data, size = inputs[0], int(attributes["size"])
    shape, dtype = shape_of(context, data), dtype_of(data)
    if len(shape) < 2:
        raise context.fail("data of one dimension has no channels")
    before = (size - 1) // 2
    square = context.emit(relax.op.multiply(data, data))
    image = context.emit(relax.op.reshape(square, [shape[0], 1, shape[1], prod(shape[2:])]))
    sides = (before, 0, size - 1 - before, 0)
    mean = relax.op.nn.avg_pool2d(image, (size, 1), padding=sides, count_include_pad=True)
    mean = context.emit(relax.op.reshape(context.emit(mean), shape))
    scaled = context.emit(relax.op.multiply(mean, scalar(attributes.get("alpha", 1e-4), dtype)))
    total = context.emit(relax.op.add(scaled, scalar(attributes.get("bias", 1.0), dtype)))
    power = context.emit(relax.op.power(total, scalar(attributes.get("beta", 0.75), dtype)))
    return relax.op.divide(data, power)


CONVERTERS: dict[str, Converter] = {
    "BatchNormalization": _batch_norm,
    "LRN": _local_response,
    "LayerNormalization": _layer_norm,
    "LpNormalization": _lp_norm,
    "RMSNormalization": _rms_norm,
}
