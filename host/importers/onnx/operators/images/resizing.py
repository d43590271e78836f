"""Resize and Upsample.

What relax's resize2d can do is left to it, because it compiles to the better program; everything else
becomes, axis by axis, a weighted sum of a few neighbours whose numbers and weights the program computes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from host.importers.onnx.operators.context import (
    Attributes,
    Context,
    Converter,
    Inputs,
    constant,
    constant_value,
    dtype_of,
    get,
    scalar,
    shape_of,
)

_SIMPLE = "simple"
# Resized as float32 and rounded once, as ONNX Runtime does, not along each axis.
_HALVES = ("float16", "bfloat16")


@dataclass(frozen=True)
class _Axis:
    """How one axis is resized.

    Attributes:
        size, out: its length before and after.
        scale: a tensor of one float32, out over in.
        region: a tensor of two float32, start and end, for `tf_crop_and_resize`; else None.
    """

    size: int
    out: int
    scale: Any
    region: Any


@dataclass(frozen=True)
class _Method:
    """The attributes of Resize, as the specification of ONNX names and defines them.

    Before opset 11, `nearest` is `_SIMPLE`: upwards where an axis becomes shorter, else downwards, as ONNX's
    own tests and ONNX Runtime have it.
    """

    mode: str
    coordinates: str
    nearest: str
    cubic: float
    antialias: bool
    exclude_outside: bool
    outside: float


def _method(attributes: Attributes) -> _Method:
    def text(name: str, default: str) -> str:
        value = attributes.get(name)
        return default if value is None else value.decode()

    return _Method(
        text("mode", "nearest"),
        text("coordinate_transformation_mode", "half_pixel"),
        text("nearest_mode", "round_prefer_floor"),
        float(attributes.get("cubic_coeff_a", -0.75)),
        bool(attributes.get("antialias", 0)),
        bool(attributes.get("exclude_outside", 0)),
        float(attributes.get("extrapolation_value", 0.0)),
    )


def _resize(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    data = inputs[0]
    if dtype_of(data) in _HALVES:
        wide = context.emit(relax.op.astype(data, "float32"))
        return relax.op.astype(
            context.emit(_resize(context, [wide, *inputs[1:]], attributes)), dtype_of(data)
        )
    method = _method(attributes)
    if context.opset < 11:
        method = _Method(method.mode, "asymmetric", _SIMPLE, -0.75, False, False, 0.0)
        region, scales, sizes = None, inputs[1], None
    else:
        region, scales, sizes = get(inputs, 1), get(inputs, 2), get(inputs, 3)
    shape = shape_of(context, data)
    axes = [axis % len(shape) for axis in attributes.get("axes", range(len(shape)))]
    if scales is not None and shape_of(context, scales) == (0,):
        scales = None
    policy = attributes.get("keep_aspect_ratio_policy", b"stretch").decode()
    out, factors = _targets(context, shape, axes, scales, sizes, policy)
    simple = _resize2d(context, data, method, out, factors)
    if simple is not None:
        return simple
    moves = method.mode == "nearest" or "float" in dtype_of(data)
    # What is cut off is the result, and not what is resized along one axis alone. With antialiasing ONNX
    # Runtime rounds, and does so along each axis, from the last on; of int8 it makes numbers that are no
    # neighbours, and the reference of the standard counts, which rounds once.
    result = data if moves else context.emit(relax.op.astype(data, "float32"))
    by_reference = method.antialias and dtype_of(data) == "int8"
    rounds, order = method.antialias and not moves and not by_reference, list(enumerate(axes))
    for position, axis in reversed(order) if rounds else order:
        wants_region = method.coordinates == "tf_crop_and_resize"
        if out[axis] == shape[axis] and factors[axis] == 1.0 and not wants_region:
            continue
        scale = (
            _pick(context, scales, [position])
            if factors[axis] is None
            else constant(np.array([factors[axis]], np.float32))
        )
        window = _pick(context, region, [position, position + len(axes)]) if wants_region else None
        step = _Axis(shape[axis], out[axis], scale, window)
        factor, along = factors[axis], _along(step, method)
        if method.mode == "nearest" and factor is not None and not wants_region:
            result = context.emit(_pick_nearest(result, axis, step, along, factor))
            continue
        result = _resize_axis(context, result, axis, step, along)
        result = _nearest_of_type(context, result, dtype_of(data)) if rounds else result
    if by_reference:
        result = context.emit(relax.op.clip(context.emit(relax.op.round(result)), -128, 127))
    return result if moves else relax.op.astype(result, dtype_of(data))


def _nearest_of_type(context: Context, numbers: Any, dtype: str) -> Any:
    """Whole numbers, as floats: a cubic's may lie beyond those of the type."""
    whole = context.emit(relax.op.floor(context.emit(relax.op.add(numbers, scalar(0.5, "float32")))))
    return context.emit(relax.op.clip(whole, float(np.iinfo(dtype).min), float(np.iinfo(dtype).max)))


def _along(step: _Axis, method: _Method) -> _Method:
    """The method along one axis."""
    if method.nearest != _SIMPLE:
        return method
    return replace(method, nearest="ceil" if step.out < step.size else "floor")


def _pick(context: Context, values: Any, positions: list[int]) -> Any:
    taken = relax.op.take(values, constant(np.array(positions, np.int64)), 0, mode="clip")
    return context.emit(relax.op.astype(taken, "float32"))


def _targets(
    context: Context, shape: tuple[int, ...], axes: list[int], scales: Any, sizes: Any, policy: str
) -> tuple[list[int], list[float | None]]:
    """Length of each axis afterwards, and its scale, None where only the model computes it."""
    out, factors = list(shape), [1.0 for _ in shape]
    unknown: list[float | None] = [1.0 for _ in shape]
    if sizes is None:
        given = constant_value(scales)
        if given is None:
            declared = context.output_shape()
            for axis in axes:
                out[axis], unknown[axis] = declared[axis], None
            return out, unknown
        for axis, factor in zip(axes, given, strict=True):
            factors[axis] = float(factor)
            out[axis] = int(np.floor(shape[axis] * np.float32(factor)))
        return out, list(factors)
    wanted = constant_value(sizes)
    target = (
        [context.output_shape()[axis] for axis in axes] if wanted is None else [int(size) for size in wanted]
    )
    ratios = [size / shape[axis] for size, axis in zip(target, axes, strict=True)]
    if policy == "stretch":
        for axis, size, ratio in zip(axes, target, ratios, strict=True):
            out[axis], factors[axis] = size, ratio
        return out, list(factors)
    ratio = _common_ratio(
        context, shape, axes, target, min(ratios) if policy == "not_larger" else max(ratios)
    )
    for axis in axes:
        out[axis], factors[axis] = int(np.floor(shape[axis] * ratio + 0.5)), ratio
    return out, list(factors)


def _common_ratio(
    context: Context, shape: tuple[int, ...], axes: list[int], target: list[int], preferred: float
) -> float:
    """The one ratio of all axes; where only rounded sizes are known, the one that rounds to all of them."""
    declared = context.output_shapes[0]
    if declared is None:
        return preferred
    candidates = [preferred, *(size / shape[axis] for size, axis in zip(target, axes, strict=True))]
    for ratio in candidates:
        if all(int(np.floor(shape[axis] * ratio + 0.5)) == declared[axis] for axis in axes):
            return ratio
    raise context.fail("its sizes depend on the model's inputs")


def _resize2d(
    context: Context, data: Any, method: _Method, out: list[int], factors: list[float | None]
) -> Any | None:
    """Relax's own operator, where it means the same; None elsewhere."""
    shape = shape_of(context, data)
    modes = {"half_pixel": "half_pixel", "asymmetric": "asymmetric", "align_corners": "align_corners"}
    whole = len(shape) == 4 and out[:2] == list(shape[:2]) and method.mode in ("nearest", "linear")
    exact = all(
        factor is not None and size * factor == end
        for size, factor, end in zip(shape, factors, out, strict=True)
    )
    plain = not method.antialias and not method.exclude_outside
    if not (whole and exact and plain and method.coordinates in modes and dtype_of(data) == "float32"):
        return None
    upward = all(end % size == 0 for size, end in zip(shape, out, strict=True))
    if (
        method.mode == "nearest"
        and method.coordinates == "asymmetric"
        and method.nearest in ("floor", _SIMPLE)
        and upward
    ):
        return relax.op.image.resize2d(data, out[2:], None, "NCHW", "nearest_neighbor", "asymmetric", "floor")
    if method.mode == "linear":
        return relax.op.image.resize2d(data, out[2:], None, "NCHW", "linear", modes[method.coordinates])
    return None


def _resize_axis(context: Context, data: Any, axis: int, step: _Axis, method: _Method) -> Any:
    """Interpolate along one axis: a weighted sum of neighbours (taps) for each output coordinate."""
    shape = list(shape_of(context, data))
    shape[axis] = step.out
    taps = _taps(step, method)
    extra = [] if step.region is None else [step.region]

    def compute(source: te.Tensor, scale: te.Tensor, *region: te.Tensor) -> te.Tensor:
        where = te.compute(
            (step.out,),
            lambda o: _original(tirx.Cast("float32", o), step, method, scale(0), region),
            name="coordinate",
        )
        base, weights = _weights(step, method, where, scale, taps)
        dtype = source.dtype

        def element(*at: Any) -> Any:
            total: Any = tirx.const(0.0, "float32")
            for number, tap in enumerate(taps):
                index = tirx.max(tirx.min(base(at[axis]) + tap, step.size - 1), 0)
                value = source(*at[:axis], index, *at[axis + 1 :])
                if method.mode == "nearest":
                    total = value
                else:
                    total += tirx.Cast("float32", value) * weights(at[axis], number)
            result = tirx.Cast(dtype, total)
            if not region:
                return result
            x = where(at[axis])
            inside = tirx.all(x >= 0.0, x <= float(step.size - 1))
            return tirx.Select(inside, result, tirx.const(method.outside, dtype))

        return te.compute(shape, element, name="resize")

    return context.compute(compute, data, step.scale, *extra)


def _taps(step: _Axis, method: _Method) -> range:
    """Neighbours, counted from the one at or below the coordinate, that may have weight."""
    if method.mode == "nearest":
        return range(1)
    reach = 1 if method.mode == "linear" else 2
    if method.antialias and step.out < step.size:
        reach = int(np.ceil(reach * step.size / step.out)) + 1
    return range(1 - reach, reach + 1)


def _original(x: Any, step: _Axis, method: _Method, scale: Any, region: Any) -> Any:
    """The coordinate before resizing that an output coordinate corresponds to.

    Args:
        x: the output coordinate, as an expression or an array of float32.
        step: the axis.
        method: of the resizing.
        scale: an expression or a number of float32.
        region: first and last coordinate of the region, as of the mode tf_crop_and_resize.
    """
    last = float(step.size - 1)
    if method.coordinates == "asymmetric":
        return x / scale
    if method.coordinates == "align_corners":
        return x * (last / (step.out - 1) if step.out > 1 else 0.0)
    if method.coordinates == "pytorch_half_pixel" and step.out == 1:
        return x * 0.0
    if method.coordinates == "half_pixel_symmetric":
        adjustment = float(step.out) / (scale * float(step.size))
        offset = step.size / 2 * (1.0 - adjustment)
        return offset + (x + 0.5) / scale - 0.5
    if method.coordinates == "tf_crop_and_resize":
        start, end = region[0](0), region[0](1)
        if step.out > 1:
            return start * last + x * (end - start) * (last / (step.out - 1))
        return 0.5 * (start + end) * last
    return (x + 0.5) / scale - 0.5


def _weights(
    step: _Axis, method: _Method, where: te.Tensor, scale: te.Tensor, taps: range
) -> tuple[Callable[[Any], Any], Callable[[Any, int], Any]]:
    """The neighbour below each output coordinate, and the weight of each tap."""
    if method.mode == "nearest":
        base = te.compute(
            (step.out,),
            lambda o: tirx.Cast("int64", _nearest(where(o), method.nearest, tirx.floor, tirx.ceil)),
            name="nearest",
        )
        return base, lambda o, tap: None
    base = te.compute((step.out,), lambda o: tirx.Cast("int64", tirx.floor(where(o))), name="base")
    one = tirx.const(1.0, "float32")
    shrink = tirx.min(scale(0), one) if method.antialias else one

    def raw(o: Any, tap: Any) -> Any:
        fraction = where(o) - tirx.floor(where(o))
        distance = tirx.abs(tirx.Cast("float32", tap + taps.start) - fraction) * shrink
        weight = _kernel(distance, method)
        if not method.exclude_outside:
            return weight
        index = base(o) + tap + taps.start
        return tirx.Select(tirx.all(index >= 0, index < step.size), weight, tirx.const(0.0, "float32"))

    unscaled = te.compute((step.out, len(taps)), raw, name="unscaled")
    if not (method.antialias or method.exclude_outside):
        return base, unscaled
    number = te.reduce_axis((0, len(taps)), name="tap")
    total = te.compute((step.out,), lambda o: te.sum(unscaled(o, number), axis=number), name="total")
    weights = te.compute((step.out, len(taps)), lambda o, tap: unscaled(o, tap) / total(o), name="weights")
    return base, weights


def _kernel(distance: Any, method: _Method) -> Any:
    """Weight of a neighbour at a distance, not negative."""
    one, zero = tirx.const(1.0, "float32"), tirx.const(0.0, "float32")
    if method.mode == "linear":
        return tirx.max(one - distance, zero)
    a = tirx.const(method.cubic, "float32")
    near = ((a + 2.0) * distance - (a + 3.0)) * distance * distance + one
    far = ((a * distance - 5.0 * a) * distance + 8.0 * a) * distance - 4.0 * a
    return tirx.Select(distance <= 1.0, near, tirx.Select(distance < 2.0, far, zero))


def _nearest(x: Any, mode: str, floor: Callable[[Any], Any], ceil: Callable[[Any], Any]) -> Any:
    """The whole coordinate to which a fractional one is rounded, both of float32."""
    return {
        "floor": lambda: floor(x),
        "ceil": lambda: ceil(x),
        "round_prefer_ceil": lambda: floor(x + 0.5),
        "round_prefer_floor": lambda: ceil(x - 0.5),
    }[mode]()


def _pick_nearest(data: Any, axis: int, step: _Axis, method: _Method, scale: float) -> Any:
    """Elements along one axis by number, where the scale is known."""
    x = np.arange(step.out, dtype=np.float32)
    where = _original(x, step, method, np.float32(scale), None)
    numbers = _nearest(where, method.nearest, np.floor, np.ceil).astype(np.int64)
    return relax.op.take(data, constant(np.clip(numbers, 0, step.size - 1)), axis, mode="clip")


def _upsample(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    scales = attributes.get("scales")
    factors = constant(np.array(scales, np.float32)) if scales is not None else inputs[1]
    mode = attributes.get("mode", b"nearest")
    changed = {
        "mode": b"linear" if mode in (b"linear", b"bilinear") else mode,
        "coordinate_transformation_mode": b"asymmetric",
        "nearest_mode": _SIMPLE.encode(),
    }
    method = Context(context.builder, "Resize", 13, context.outputs, context.output_shapes, context.values)
    return _resize(method, [inputs[0], None, factors], changed)


CONVERTERS: dict[str, Converter] = {"Resize": _resize, "Upsample": _upsample}
