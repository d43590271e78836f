"""Pooling of torch programs: what TVM's frontend lacks, or computes as something else."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from math import inf, prod
from typing import Any

import numpy as np
from torch import fx
from tvm import relax

from host.importers.torch.placed import sizes_of


def of_each(numbers: Any, count: int) -> list[int]:
    """A number for each axis, of which one may stand for all."""
    given = [numbers] if isinstance(numbers, int) else list(numbers)
    return given * count if len(given) == 1 else given


def _max_pool(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """Maximum pooling, with steps as long as the window where none are given."""
    data, images = given["self"], str(node.target).startswith("aten.max_pool2d")
    spatial, pool = (2, relax.op.nn.max_pool2d) if images else (3, relax.op.nn.max_pool3d)
    # Without an axis of the batch, TVM converts it, or the import says that nothing does.
    if data.ty.ndim != spatial + 2:
        return None
    names = ("kernel_size", "stride", "padding", "dilation")
    kernel, steps, padding, dilation = (of_each(given[name], spatial) for name in names)
    if _takes_places(node):
        return _maxima_and_places(builder, node, given)
    made = builder.emit(pool(data, kernel, steps or kernel, padding * 2, dilation, given["ceil_mode"]))
    return made, None


def _maxima_and_places(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """Maxima of windows, and the numbers of their places within their image or volume (N, C, ...) int64.

    As in torch, the place is that of the first of equal maxima, and of the last NaN where there is one.
    """
    data, emit = given["self"], builder.emit
    sizes, shape = sizes_of(data), list(node.meta["val"][0].shape)
    if sizes is None:
        return None
    count = len(sizes) - 2
    names = ("kernel_size", "stride", "padding", "dilation")
    kernel, steps, padding, dilation = (of_each(given[name], count) for name in names)
    numbers, inside, windows = np.zeros((), np.int64), np.ones((), bool), data
    for axis in range(count):
        made, size = shape[2 + axis], sizes[2 + axis]
        taps = np.arange(kernel[axis]) * dilation[axis]
        places = np.arange(made)[:, None] * (steps or kernel)[axis] - padding[axis] + taps
        windows = _taken(builder, windows, places, 2 + 2 * axis, size)
        numbers = numbers[..., None, None] * size + np.clip(places, 0, size - 1)
        inside = inside[..., None, None] & (places >= 0) & (places < size)
    # Of each axis, first all windows and then all taps.
    order = [2 * axis for axis in range(count)] + [2 * axis + 1 for axis in range(count)]
    rows = prod(shape[2:]), prod(kernel)
    table, inside = (one.transpose(order).reshape(rows) for one in (numbers, inside))
    # What pads is as small as the smallest number: where all are that, the first place in the image is meant.
    table = np.where(inside, table, np.take_along_axis(table, inside.argmax(1)[:, None], 1))
    windows = emit(relax.op.permute_dims(windows, [0, 1, *(2 + axis for axis in order)]))
    windows = emit(relax.op.reshape(windows, (*shape[:2], *rows)))
    leading = _leading(builder, windows)
    steps_of_rows = relax.const(np.arange(rows[0])[:, None] * rows[1], "int64")
    flat = emit(relax.op.add(leading, steps_of_rows))
    found = emit(relax.op.take(relax.const(table.reshape(-1), "int64"), flat, 0, mode="clip"))
    found = emit(relax.op.squeeze(found, [3]))
    images = emit(relax.op.reshape(data, (*sizes[:2], prod(sizes[2:]))))
    largest = emit(relax.op.gather_elements(images, found, 2))
    return emit(relax.op.reshape(largest, shape)), emit(relax.op.reshape(found, shape))


def _leading(builder: relax.BlockBuilder, windows: Any) -> Any:
    """The tap of each window (..., 1) whose place is that of its maximum."""
    emit, taps = builder.emit, sizes_of(windows)
    first = emit(relax.op.argmax(windows, -1, keepdims=True))
    if taps is None or not str(windows.ty.dtype).startswith(("float", "bfloat")):
        return first
    number = relax.const(np.arange(taps[-1]), "int64")
    nan = emit(relax.op.where(emit(relax.op.isnan(windows)), number, relax.const(-1, "int64")))
    last = emit(relax.op.max(nan, -1, keepdims=True))
    none = emit(relax.op.less(last, relax.const(0, "int64")))
    return emit(relax.op.where(none, first, last))


def _taken(builder: relax.BlockBuilder, data: Any, places: np.ndarray, axis: int, size: int) -> Any:
    """Elements along an axis by number, one axis for each of the numbers; minus infinity outside."""
    emit, dtype = builder.emit, str(data.ty.dtype)
    inside = (places >= 0) & (places < size)
    kept = relax.const(np.clip(places, 0, size - 1), "int64")
    taken = emit(relax.op.take(data, kept, axis, mode="clip"))
    if inside.all():
        return taken
    shape = [1] * taken.ty.ndim
    shape[axis : axis + 2] = places.shape
    least = -inf if dtype.startswith(("float", "bfloat")) else np.iinfo(dtype).min
    return emit(relax.op.where(relax.const(inside.reshape(shape)), taken, relax.const(least, dtype)))


def _takes_places(node: fx.Node) -> bool:
    """Whether anything reads the places of the maxima, beside the maxima."""
    return any(user.target is operator.getitem and user.args[1] == 1 for user in node.users)


def _adaptive_max(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """The largest elements of windows, as many along each of the last axes as are asked for.

    Where they are is not computed.
    """
    data, emit, sizes = given["self"], builder.emit, sizes_of(given["self"])
    if sizes is None or _takes_places(node):
        return None
    for axis, made in zip(range(-len(given["output_size"]), 0), given["output_size"], strict=True):
        bounds = [(at * sizes[axis] // made, -(-(at + 1) * sizes[axis] // made)) for at in range(made)]
        windows = [emit(relax.op.strided_slice(data, [axis], [low], [high])) for low, high in bounds]
        largest = [emit(relax.op.max(window, axis, keepdims=True)) for window in windows]
        data = emit(relax.op.concat(largest, axis))
    return data, None


def _mean_pool(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """Sums of windows over a number of its own; TVM divides by the size of a window, and converts others."""
    data, divisor, emit = given["self"], given["divisor_override"], builder.emit
    spatial = 2 if str(node.target).startswith("aten.avg_pool2d") else 3
    sizes, shape = sizes_of(data), list(node.meta["val"].shape)
    if divisor is None:
        return None
    if sizes is None or len(sizes) != spatial + 2:
        return None
    names = ("kernel_size", "stride", "padding")
    kernel, steps, padding = (of_each(given[name], spatial) for name in names)
    steps = steps or kernel
    # Zeros change no sum: those that a last window needs behind the end are padding, too.
    ends = [
        max((made - 1) * step + window - size - low, 0)
        for made, step, window, size, low in zip(shape[2:], steps, kernel, sizes[2:], padding, strict=True)
    ]
    pool = relax.op.nn.avg_pool2d if spatial == 2 else relax.op.nn.avg_pool3d
    made = emit(pool(data, kernel, steps, [*padding, *ends], count_include_pad=True))
    return emit(relax.op.multiply(made, relax.const(prod(kernel) / divisor, str(data.ty.dtype))))


CONVERTERS: Mapping[str, Any] = {
    "adaptive_max_pool2d.default": _adaptive_max,
    "adaptive_max_pool3d.default": _adaptive_max,
    "avg_pool2d.default": _mean_pool,
    "avg_pool3d.default": _mean_pool,
    "max_pool2d_with_indices.default": _max_pool,
    "max_pool3d_with_indices.default": _max_pool,
}
