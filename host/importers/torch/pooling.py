"""Pooling of torch programs: what TVM's frontend lacks, or computes as something else."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from math import inf, prod
from typing import Any

import numpy as np
from torch import fx
from tvm import relax

from device_agent.contract.limits import LIMITS
from host.errors import ImportFailed
from host.importers.torch.placed import sizes_of
from host.importers.torch.resizing import weighted_neighbours

# Elements of a window up to which each is an addend.
_MOST_TAPS = 32


def of_each(numbers: Any, count: int) -> list[int]:
    """A number for each axis, of which one may stand for all."""
    given = [numbers] if isinstance(numbers, int) else list(numbers)
    return given * count if len(given) == 1 else given


def _max_pool(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """Maximum pooling, with steps as long as the window where none are given."""
    data, images = given["self"], str(node.target).startswith("aten.max_pool2d")
    spatial, pool = (2, relax.op.nn.max_pool2d) if images else (3, relax.op.nn.max_pool3d)
    if _takes_places(node):
        return _maxima_and_places(builder, node, given, spatial)
    # Without an axis of the batch, TVM converts it, or the import says that nothing does.
    if data.ty.ndim != spatial + 2:
        return None
    names = ("kernel_size", "stride", "padding", "dilation")
    kernel, steps, padding, dilation = (of_each(given[name], spatial) for name in names)
    made = builder.emit(pool(data, kernel, steps or kernel, padding * 2, dilation, given["ceil_mode"]))
    return made, None


def _maxima_and_places(
    builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any], count: int
) -> tuple[Any, ...]:
    """Maxima of windows, and the numbers of their places within their image or volume (N, C, ...) int64.

    As in torch, the place is that of the first of equal maxima, and of the last NaN where there is one.

    Args:
        builder: for what is computed on the way.
        node: the pooling.
        given: its arguments.
        count: of axes of the windows; those before are the batch, which may lack, and channels.

    Raises:
        ImportFailed: the windows have more elements than a model may compute with. TVM would make zeros of
            the places.
    """
    data, emit = given["self"], builder.emit
    sizes, made = sizes_of(data), list(node.meta["val"][0].shape)
    names = ("kernel_size", "stride", "padding", "dilation")
    kernel, steps, padding, dilation = (of_each(given[name], count) for name in names)
    if sizes is None or prod(made) * prod(kernel) > LIMITS.model.computed_elements:
        name = str(getattr(node.target, "__name__", node.target))
        raise ImportFailed(f"operator {name} with places has no conversion for windows of this size", name)
    sizes, shape = ([1] * (2 + count - len(one)) + one for one in (sizes, made))
    data = emit(relax.op.reshape(data, sizes))
    windows, places = data, []
    for axis in range(count):
        size, taps = sizes[2 + axis], np.arange(kernel[axis]) * dilation[axis]
        places.append(np.arange(shape[2 + axis])[:, None] * (steps or kernel)[axis] - padding[axis] + taps)
        windows = _taken(builder, windows, places[-1], 2 + 2 * axis, size)
    # Of each axis, first all windows and then all taps.
    order = [2 * axis for axis in range(count)] + [2 * axis + 1 for axis in range(count)]
    windows = emit(relax.op.permute_dims(windows, [0, 1, *(2 + axis for axis in order)]))
    windows = emit(relax.op.reshape(windows, (*shape, prod(kernel))))
    leading = emit(relax.op.squeeze(_leading(builder, windows), [2 + count]))
    found = _numbers(builder, leading, kernel, places, sizes[2:])
    images = emit(relax.op.reshape(data, (*sizes[:2], prod(sizes[2:]))))
    flat = emit(relax.op.reshape(found, (*sizes[:2], prod(shape[2:]))))
    largest = emit(relax.op.gather_elements(images, flat, 2))
    return tuple(emit(relax.op.reshape(one, made)) for one in (largest, found))


def _numbers(
    builder: relax.BlockBuilder,
    taps: Any,
    kernel: Sequence[int],
    places: Sequence[np.ndarray],
    sizes: Sequence[int],
) -> Any:
    """The numbers of places within their image or volume, axis by axis: no table has all taps of all windows.

    Args:
        builder: for what is computed on the way.
        taps: number of a tap of each window (N, C, ...) int64, the last axis of the kernel fastest.
        kernel: taps along each axis.
        places: along each axis the place of each tap of each window (windows, taps), some outside.
        sizes: of the image or volume.
    """
    emit, op, count = builder.emit, relax.op, len(kernel)
    found = None
    for axis, (length, places_along, size) in enumerate(zip(kernel, places, sizes, strict=True)):
        inside = (places_along >= 0) & (places_along < size)
        # What pads is as small as the smallest number. Where all are that, the first tap leads, and the first
        # place inside of the image is meant: along each axis that of the first tap which is inside.
        first = np.take_along_axis(places_along, inside.argmax(1)[:, None], 1)
        numbers = np.clip(np.where(inside, places_along, first), 0, size - 1)
        table = relax.const(numbers.reshape(-1), "int64")
        later, own = (relax.const(number, "int64") for number in (prod(kernel[axis + 1 :]), length))
        tap = emit(op.floor_divide(taps, later))
        tap = emit(op.subtract(tap, emit(op.multiply(emit(op.floor_divide(tap, own)), own))))
        windows = np.arange(len(places_along)).reshape(-1, *[1] * (count - 1 - axis)) * length
        row = emit(op.add(tap, relax.const(windows, "int64")))
        place = emit(op.take(table, row, 0, mode="clip"))
        if found is not None:
            place = emit(op.add(emit(op.multiply(found, relax.const(size, "int64"))), place))
        found = place
    return found


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
    kernel = _equal_windows(sizes, given["output_size"])
    if kernel is not None and len(sizes) == len(kernel) + 2:
        pool = relax.op.nn.max_pool2d if len(kernel) == 2 else relax.op.nn.max_pool3d
        return emit(pool(data, kernel, kernel)), None
    for axis, made in zip(range(-len(given["output_size"]), 0), given["output_size"], strict=True):
        bounds = [(at * sizes[axis] // made, -(-(at + 1) * sizes[axis] // made)) for at in range(made)]
        windows = [emit(relax.op.strided_slice(data, [axis], [low], [high])) for low, high in bounds]
        largest = [emit(relax.op.max(window, axis, keepdims=True)) for window in windows]
        data = emit(relax.op.concat(largest, axis))
    return data, None


def _equal_windows(sizes: Sequence[int], made: Sequence[int]) -> list[int] | None:
    """The lengths of as many windows as are asked for along each of the last axes, where all are equal."""
    pairs = list(zip(sizes[len(sizes) - len(made) :], made, strict=True))
    whole = all(count > 0 and size % count == 0 for size, count in pairs)
    return [size // count for size, count in pairs] if whole else None


def _adaptive_mean(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """Means of windows, as many along each of the last axes as are asked for.

    TVM has a loop for it whose length depends on the place, which no program has vectors for.
    """
    data, made, sizes = given["self"], list(node.meta["val"].shape), sizes_of(given["self"])
    if sizes is None or len(sizes) not in (4, 5) or not all(isinstance(size, int) for size in made):
        return None
    made, spatial = made[2:], sizes[2:]
    if all(count == 1 for count in made):
        return None
    uneven = [count < 1 or size % count != 0 for size, count in zip(spatial, made, strict=True)]
    windows = [
        _uneven_windows(*pair) if odd else None for odd, *pair in zip(uneven, spatial, made, strict=True)
    ]
    if any(one is not None and len(one[0]) > _MOST_TAPS for one in windows):
        return None
    kernel = [1 if odd else size // count for odd, size, count in zip(uneven, spatial, made, strict=True)]
    if max(kernel) > 1:
        pool = relax.op.nn.avg_pool2d if len(kernel) == 2 else relax.op.nn.avg_pool3d
        data = builder.emit(pool(data, kernel, kernel))
    for axis, one in enumerate(windows, 2):
        if one is not None:
            data = weighted_neighbours(builder, data, axis, *one)
    return data


def _uneven_windows(size: int, made: int) -> tuple[np.ndarray, np.ndarray]:
    """Places and weights of each window along an axis, as of `weighted_neighbours`.

    From floor(i size / made) to the ceiling of (i + 1) size / made. A window that is shorter than others has
    its last element several times, with a part of its weight each.
    """
    at = np.arange(made)
    low, high = at * size // made, -(-(at + 1) * size // made)
    lengths = high - low
    steps = np.arange(lengths.max())[:, None]
    shares = np.where(steps < lengths - 1, 1, lengths.max() - lengths + 1)
    return np.minimum(low + steps, high - 1), 1.0 / (lengths * shares)


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
    "_adaptive_avg_pool2d.default": _adaptive_mean,
    "_adaptive_avg_pool3d.default": _adaptive_mean,
    "adaptive_max_pool2d.default": _adaptive_max,
    "adaptive_max_pool3d.default": _adaptive_max,
    "avg_pool2d.default": _mean_pool,
    "avg_pool3d.default": _mean_pool,
    "max_pool2d_with_indices.default": _max_pool,
    "max_pool3d_with_indices.default": _max_pool,
}
