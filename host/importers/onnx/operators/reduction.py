"""Reductions over axes, which ONNX gives as attributes or as a tensor."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
from tvm import relax

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

_Reduce = Callable[[Any, list[int], bool], Any]

# Operators whose axes became an input in version 18 of the standard; ReduceSum's did in 13.
_AXES_INPUT_SINCE = {"ReduceSum": 13}


def possible_axes(context: Context, inputs: Inputs, attributes: Attributes) -> list[list[int]]:
    """The axes to reduce: one list, or several that fit if the model computes them.

    Raises:
        ImportFailed: none fit.
    """
    shape = shape_of(context, inputs[0])
    axes = attributes.get("axes")
    if context.opset >= _AXES_INPUT_SINCE.get(context.operator, 18):
        given = get(inputs, 1)
        axes = constant_value(given)
        if given is not None and axes is None:
            if shape_of(context, given) != (0,):
                return _axes_from_shapes(context, shape, shape_of(context, given)[0], attributes)
            axes = np.zeros(0, np.int64)
    if axes is None or len(axes) == 0:
        return [[] if attributes.get("noop_with_empty_axes", 0) else list(range(len(shape)))]
    return [sorted({int(axis) % len(shape) for axis in axes})]


def _axes_from_shapes(
    context: Context, shape: tuple[int, ...], count: int, attributes: Attributes
) -> list[list[int]]:
    keep = attributes.get("keepdims", 1)
    out = context.output_shapes[0]

    def result(axes: tuple[int, ...]) -> tuple[int, ...]:
        if keep:
            return tuple(1 if axis in axes else size for axis, size in enumerate(shape))
        return tuple(size for axis, size in enumerate(shape) if axis not in axes)

    fitting = [axes for axes in combinations(range(len(shape)), count) if out is None or result(axes) == out]
    if not fitting or len({result(axes) for axes in fitting}) > 1:
        raise context.fail("the shape of its output depends on the model's inputs")
    return [list(axes) for axes in fitting]


def _choose(context: Context, inputs: Inputs, candidates: list[list[int]], results: list[Any]) -> Any:
    """The result whose axes are those that the model computed."""
    rank = len(shape_of(context, inputs[0]))
    axes = context.emit(relax.op.astype(inputs[1], "int64"))
    size = scalar(rank, "int64")
    axes = context.emit(
        relax.op.where(relax.op.less(axes, scalar(0, "int64")), relax.op.add(axes, size), axes)
    )
    bits = context.emit(relax.op.sum(relax.op.left_shift(scalar(1, "int64"), axes)))
    chosen = results[0]
    for candidate, result in zip(candidates[1:], results[1:], strict=True):
        wanted = scalar(sum(1 << axis for axis in candidate), "int64")
        chosen = context.emit(relax.op.where(relax.op.equal(bits, wanted), result, chosen))
    return chosen


def _reduction(
    reduce: _Reduce, before: Callable[[Any], Any] | None = None, after: Callable[[Any], Any] | None = None
) -> Converter:
    def convert(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
        value = inputs[0]
        if 0 in shape_of(context, value):
            return _of_nothing(context, value)
        candidates = possible_axes(context, inputs, attributes)
        keep = bool(attributes.get("keepdims", 1))
        if before is not None:
            value = context.emit(before(value))
        results = [context.emit(reduce(value, axes, keep)) if axes else value for axes in candidates]
        value = results[0] if len(results) == 1 else _choose(context, inputs, candidates, results)
        return after(value) if after is not None else value

    return convert


def _of_nothing(context: Context, value: Any) -> Any:
    """The reduction of an empty set, which has a value of its own per operator."""
    dtype = dtype_of(value)
    info = np.finfo(dtype) if np.dtype(dtype).kind == "f" else np.iinfo(dtype)
    real = np.dtype(dtype).kind == "f"
    results = {
        "ReduceProd": 1,
        "ReduceMin": np.inf if real else info.max,
        "ReduceMax": -np.inf if real else info.min,
        "ReduceLogSum": -np.inf,
        "ReduceLogSumExp": -np.inf,
        "ReduceMean": np.nan,
    }
    fill = np.array(results.get(context.operator, 0)).astype(dtype)
    return relax.op.broadcast_to(constant(fill), context.output_shape())


def _extreme(reduce: _Reduce) -> Converter:
    """Largest or smallest; truth values are compared as numbers."""
    plain = _reduction(reduce)

    def convert(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
        if dtype_of(inputs[0]) != "bool":
            return plain(context, inputs, attributes)
        numbers = context.emit(relax.op.astype(inputs[0], "int8"))
        result = context.emit(plain(context, [numbers, *inputs[1:]], attributes))
        return relax.op.astype(result, "bool")

    return convert


def _mean(value: Any, axes: list[int], keep: bool) -> Any:
    if np.dtype(dtype_of(value)).kind == "f":
        return relax.op.mean(value, axes, keep)
    count = int(np.prod([value.ty.shape.values[axis].value for axis in axes], dtype=np.int64))
    return relax.op.divide(relax.op.sum(value, axes, keep), scalar(count, dtype_of(value)))


def _log_sum_exp(value: Any, axes: list[int], keep: bool) -> Any:
    # Differences from an infinite maximum would be no numbers.
    bound = float(np.finfo(dtype_of(value)).max)
    largest = relax.op.clip(relax.op.max(value, axes, True), -bound, bound)
    total = relax.op.sum(relax.op.exp(relax.op.subtract(value, largest)), axes, True)
    result = relax.op.add(relax.op.log(total), largest)
    return result if keep else relax.op.squeeze(result, axes)


def _square(value: Any) -> Any:
    return relax.op.multiply(value, value)


CONVERTERS: dict[str, Converter] = {
    "ReduceL1": _reduction(relax.op.sum, before=relax.op.abs),
    "ReduceL2": _reduction(relax.op.sum, before=_square, after=relax.op.sqrt),
    "ReduceLogSum": _reduction(relax.op.sum, after=relax.op.log),
    "ReduceLogSumExp": _reduction(_log_sum_exp),
    "ReduceMax": _extreme(relax.op.max),
    "ReduceMean": _reduction(_mean),
    "ReduceMin": _extreme(relax.op.min),
    "ReduceProd": _reduction(relax.op.prod),
    "ReduceSum": _reduction(relax.op.sum),
    "ReduceSumSquare": _reduction(relax.op.sum, before=_square),
}
