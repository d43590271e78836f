"""Operators of torch programs that TVM's frontend lacks, or that it converts to something else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np
import torch
from torch import fx
from tvm import relax

from host.importers.own_operator import emit_own
from host.importers.torch import bags, pooling, resizing, scattering
from host.importers.torch.functions import (
    counting,
    elementwise,
    linear_algebra,
    linear_systems,
    order_statistics,
    quantised,
)
from host.importers.torch.functions.order_statistics import MOST_COMPARISONS
from host.importers.torch.indexing import from_start, indexed, masked_scatter, strided
from host.importers.torch.placed import sizes_of
from host.importers.torch.pooling import of_each

# The value of a node, from its arguments by name; None leaves it to TVM.
Converter = Callable[[relax.BlockBuilder, fx.Node, Mapping[str, Any]], Any]


def arguments_of(node: fx.Node, values: Mapping[fx.Node, Any]) -> dict[str, Any]:
    """The arguments of a node by name, also those that have their default values.

    Args:
        node: a call of an operator.
        values: what the nodes before it have become.
    """
    found: dict[str, Any] = {}
    target: Any = node.target
    for position, argument in enumerate(target._schema.arguments):
        default = argument.default_value if argument.has_default_value() else None
        given = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name, default)
        found[argument.name] = fx.node.map_arg(given, lambda source: values[source])
    return found


def kept_whole() -> list[Any]:
    """The operators that are not to be decomposed."""
    names = (name.split(".") for name in resizing.OPERATORS)
    return [getattr(getattr(torch.ops.aten, name), overload) for name, overload in names]


def _extreme(reduce: Callable[..., Any]) -> Converter:
    """The largest or smallest element over some axes, or over all."""

    def convert(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
        axes = list(given["dim"]) or None
        return builder.emit(reduce(given["self"], axes, given["keepdim"]))

    return convert


def _extreme_and_place(reduce: Callable[..., Any], place: Callable[..., Any]) -> Converter:
    """The largest or smallest element along an axis, and where the first of such is."""

    def convert(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
        data, axis, keep = given["self"], given["dim"], given["keepdim"]
        if data.ty.ndim == 0 or str(data.ty.dtype) == "bool":
            return None
        return builder.emit(reduce(data, axis, keep)), builder.emit(place(data, axis, keep))

    return convert


def _elu(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """ELU with scales of its result and of what is below 0, as SELU is written."""
    data, emit = given["self"], builder.emit
    numbers = (0.0, given["input_scale"], 1.0, given["alpha"], given["scale"])
    zero, inner, one, alpha, scale = (relax.const(number, str(data.ty.dtype)) for number in numbers)
    below = emit(relax.op.exp(emit(relax.op.multiply(emit(relax.op.minimum(data, zero)), inner))))
    below = emit(relax.op.multiply(emit(relax.op.subtract(below, one)), alpha))
    return emit(relax.op.multiply(emit(relax.op.add(emit(relax.op.maximum(data, zero)), below)), scale))


def _group_norm(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """Groups of channels normalised, without or with numbers of each channel behind it."""
    data, channels = given["input"], given["C"]
    dtype, rank = str(data.ty.dtype), data.ty.ndim
    if not isinstance(channels, int):
        return None
    scale, shift = (
        relax.const(np.full(channels, number), dtype) if given[name] is None else given[name]
        for name, number in (("weight", 1.0), ("bias", 0.0))
    )
    axes = list(range(2, rank))
    made = relax.op.nn.group_norm(data, scale, shift, given["group"], 1, axes, given["eps"])
    return builder.emit(made), None, None


def _of_truth_values(combine: Callable[..., Any]) -> Converter:
    """Arithmetic of truth values, which is logic; TVM converts that of numbers."""

    def convert(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
        left, right = given["self"], given["other"]
        if any(isinstance(one, int | float) or str(one.ty.dtype) != "bool" for one in (left, right)):
            return None
        return builder.emit(combine(left, right))

    return convert


def _shifted(shift: Callable[..., Any]) -> Converter:
    """Whole numbers whose bits are moved."""

    def convert(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
        data, count, dtype = given["self"], given["other"], _made_in(node)
        if isinstance(count, int | float):
            count = relax.const(int(count), dtype)
        return builder.emit(shift(*(builder.emit(relax.op.astype(one, dtype)) for one in (data, count))))

    return convert


def _own_function(name: str) -> Converter:
    """A function of each element that relax does not have, and the compiler does."""

    def convert(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
        sizes, dtype = sizes_of(given["self"]), _made_in(node)
        if sizes is None:
            return None
        data = builder.emit(relax.op.astype(given["self"], dtype))
        return emit_own(builder, name, [data], {}, [(sizes, dtype)])[0]

    return convert


def _power_of_two(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """In single precision of halves: log 2 is too far from any of theirs."""
    data, emit, made = given["self"], builder.emit, _made_in(node)
    wide = made if made in ("float32", "float64") else "float32"
    scaled = emit(relax.op.multiply(emit(relax.op.astype(data, wide)), relax.const(np.log(2.0), wide)))
    return emit(relax.op.astype(emit(relax.op.exp(scaled)), made))


def _product(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """The product along an axis, or of all, in the type of the result: of whole numbers that is int64."""
    data = builder.emit(relax.op.astype(given["self"], _made_in(node)))
    return builder.emit(relax.op.prod(data, given.get("dim"), given.get("keepdim", False)))


def _of_truth(extreme: Callable[..., Any]) -> Converter:
    """Whether any element along an axis, or of all, is not zero (the greatest), or all are (the least)."""

    def convert(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
        truth, emit, dtype = given["self"], builder.emit, str(given["self"].ty.dtype)
        sizes, axes = sizes_of(truth), given.get("dim")
        axes = [axes] if isinstance(axes, int) else list(axes or []) or None
        if sizes is not None and 0 in (sizes if axes is None else [sizes[axis] for axis in axes]):
            # Of nothing, each element is anything, and none is.
            return relax.const(np.full(tuple(node.meta["val"].shape), extreme is relax.op.min))
        if dtype != "bool":
            truth = emit(relax.op.not_equal(truth, relax.const(0, dtype)))
        numbers = emit(relax.op.astype(truth, "int32"))
        found = emit(extreme(numbers, axes, given.get("keepdim", False)))
        return emit(relax.op.astype(found, "bool"))

    return convert


def _variance_and_mean(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """The variance over some axes, or over all, of as many elements less `correction`, and the mean."""
    data, emit, sizes = given["self"], builder.emit, sizes_of(given["self"])
    if sizes is None or not str(data.ty.dtype).startswith("float"):
        return None
    axes = list(given["dim"] or range(len(sizes)))
    correction = 1 if given["correction"] is None else given["correction"]
    count = prod(sizes[axis] for axis in axes)
    variance = emit(relax.op.variance(data, axes, keepdims=given["keepdim"]))
    if correction:
        scale = count / (count - correction) if count > correction else np.nan
        variance = emit(relax.op.multiply(variance, relax.const(scale, str(data.ty.dtype))))
    return variance, emit(relax.op.mean(data, axes, keepdims=given["keepdim"]))


def _made_in(node: fx.Node) -> str:
    """The type of a node's result."""
    return str(node.meta["val"].dtype).removeprefix("torch.")


def _sampled(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """An image or a volume at the places of a grid; coordinates come last in torch and second in relax."""
    data, grid = given["input"], given["grid"]
    rank = data.ty.ndim
    method = ("bilinear", "nearest", "bicubic")[given["interpolation_mode"]]
    padding = ("zeros", "border", "reflection")[given["padding_mode"]]
    places = builder.emit(relax.op.permute_dims(grid, [0, rank - 1, *range(1, rank - 1)]))
    layout, corners = "NCHW" if rank == 4 else "NCDHW", given["align_corners"]
    return builder.emit(relax.op.image.grid_sample(data, places, method, layout, padding, corners))


def _divided(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """Quotients that are rounded down or towards zero, in the type of the result."""
    # `floor_divide` has no mode.
    emit, dtype, mode = builder.emit, _made_in(node), given.get("rounding_mode", "floor")
    left, right = (
        relax.const(one, dtype) if isinstance(one, int | float) else one
        for one in (given["self"], given["other"])
    )
    if mode == "floor":
        return emit(relax.op.floor_divide(left, right))
    # Of whole numbers relax rounds towards zero.
    made = emit(relax.op.divide(left, right))
    return made if mode is None or "int" in dtype else emit(relax.op.trunc(made))


def _remainder_of_number(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """What is left of one number by many."""
    dtype = _made_in(node)
    divisors = builder.emit(relax.op.astype(given["other"], dtype))
    return builder.emit(relax.op.floor_mod(relax.const(given["self"], dtype), divisors))


def _searched(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """Where values belong among sorted numbers along the last axis: how many of these are before each.

    Every value is compared with every number, so there is a bound on the comparisons.
    """
    # `bucketize` has another name for the numbers, and no side.
    numbers = given["boundaries"] if "boundaries" in given else given["sorted_sequence"]
    values, emit = given["self"], builder.emit
    sizes, shape = sizes_of(numbers), sizes_of(values)
    if (
        sizes is None
        or not shape
        or prod(shape) * sizes[-1] > MOST_COMPARISONS
        or given.get("sorter") is not None
    ):
        return None
    right = given["right"] or given.get("side") == "right"
    compare = relax.op.less_equal if right else relax.op.less
    one, other = emit(relax.op.expand_dims(numbers, -2)), emit(relax.op.expand_dims(values, -1))
    found = emit(compare(one, other))
    if str(values.ty.dtype).startswith("float"):
        # All numbers are before NaN.
        found = emit(relax.op.logical_or(found, emit(relax.op.isnan(other))))
    before = emit(relax.op.astype(found, _made_in(node)))
    return emit(relax.op.sum(before, -1))


def _windows(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """Neighbours along an axis side by side in a new last axis, a window for each step."""
    data, sizes = given["self"], sizes_of(given["self"])
    if not sizes:
        return None
    axis, size, step = given["dimension"] % len(sizes), given["size"], given["step"]
    starts = np.arange((sizes[axis] - size) // step + 1) * step
    numbers = relax.const(starts[:, None] + np.arange(size), "int64")
    taken = builder.emit(relax.op.take(data, numbers, axis, mode="clip"))
    order = [*range(axis + 1), *range(axis + 2, len(sizes) + 1), axis + 1]
    return builder.emit(relax.op.permute_dims(taken, order))


def _number_of(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """The number that a tensor of one element holds, as a tensor, where it is a place for `select` alone."""
    placed = all(user.target is torch.ops.aten.select.int for user in node.users)
    if sizes_of(given["self"]) is None or not placed:
        return None
    return builder.emit(relax.op.reshape(given["self"], ()))


def _selected(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """What is at one place along an axis, where the place is known only when the model runs."""
    data, index, sizes = given["self"], given["index"], sizes_of(given["self"])
    if sizes is None or not isinstance(index, relax.Expr):
        return None
    axis = given["dim"] % len(sizes)
    return builder.emit(relax.op.take(data, from_start(builder, index, sizes[axis]), axis, mode="clip"))


def _largest_few(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """The largest or smallest elements along an axis and their places, in order where any order will do."""
    return _in_order(builder, given, given["k"], given["largest"])


def _sorted(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """All elements along an axis in order and their places; equal ones keep their order in any case."""
    sizes = sizes_of(given["self"])
    return _in_order(builder, given, sizes[given["dim"]], given["descending"]) if sizes else None


def _places_of_sorted(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """The places of the elements along an axis in order."""
    found = _sorted(builder, node, given)
    return None if found is None else found[1]


def _in_order(builder: relax.BlockBuilder, given: Mapping[str, Any], count: int, descending: bool) -> Any:
    data, axis = given["self"], given["dim"]
    if not count:  # which relax takes for all
        none = builder.emit(relax.op.strided_slice(data, [axis], [0], [0]))
        return none, builder.emit(relax.op.astype(none, "int64"))
    found = builder.emit(relax.op.topk(data, count, axis, "both", descending, "int64"))
    return tuple(builder.emit(relax.TupleGetItem(found, number)) for number in range(2))


def _convolution(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """A transposed convolution of volumes; TVM converts the others."""
    data, weight, bias, emit = given["input"], given["weight"], given["bias"], builder.emit
    if not given["transposed"] or data.ty.ndim != 5:
        return None
    names = ("stride", "padding", "output_padding", "dilation")
    steps, padding, extra, dilation = (of_each(given[name], 3) for name in names)
    groups, layouts = given["groups"], ("NCDHW", "IODHW")
    made = relax.op.nn.conv3d_transpose(data, weight, steps, padding, extra, dilation, groups, *layouts)
    return emit(made) if bias is None else emit(relax.op.add(emit(made), _by_channel(builder, bias)))


def _by_channel(builder: relax.BlockBuilder, numbers: Any) -> Any:
    return builder.emit(relax.op.reshape(numbers, (1, -1, 1, 1, 1)))


CONVERTERS: Mapping[str, Converter] = {
    "amax.default": _extreme(relax.op.max),
    "amin.default": _extreme(relax.op.min),
    "max.dim": _extreme_and_place(relax.op.max, relax.op.argmax),
    "min.dim": _extreme_and_place(relax.op.min, relax.op.argmin),
    **dict.fromkeys(("all.default", "all.dim", "all.dims"), _of_truth(relax.op.min)),
    **dict.fromkeys(("any.default", "any.dim", "any.dims"), _of_truth(relax.op.max)),
    "as_strided.default": strided,
    **dict.fromkeys(("argsort.default", "argsort.stable"), _places_of_sorted),
    "convolution.default": _convolution,
    **dict.fromkeys(("div.Scalar_mode", "div.Tensor_mode"), _divided),
    **dict.fromkeys(("floor_divide.default", "floor_divide.Scalar"), _divided),
    "remainder.Scalar_Tensor": _remainder_of_number,
    "elu.default": _elu,
    "grid_sampler_2d.default": _sampled,
    "grid_sampler_3d.default": _sampled,
    "index.Tensor": indexed,
    "masked_scatter.default": masked_scatter,
    "native_group_norm.default": _group_norm,
    **dict.fromkeys(("add.Tensor", "maximum.default"), _of_truth_values(relax.op.logical_or)),
    **dict.fromkeys(("mul.Tensor", "minimum.default"), _of_truth_values(relax.op.logical_and)),
    **{f"{name}.default": _own_function(name) for name in ("erfc", "expm1", "log1p")},
    "exp2.default": _power_of_two,
    **dict.fromkeys(("prod.default", "prod.dim_int"), _product),
    **dict.fromkeys(("searchsorted.Tensor", "bucketize.Tensor"), _searched),
    **{
        f"{name}.{form}": _shifted(shift)
        for side, shift in (("left", relax.op.left_shift), ("right", relax.op.right_shift))
        for name in (f"bitwise_{side}_shift", f"__{side[0]}shift__")
        for form in ("Scalar", "Tensor", "Tensor_Scalar")
    },
    **dict.fromkeys(("_local_scalar_dense.default", "item.default"), _number_of),
    "select.int": _selected,
    **dict.fromkeys(("sort.default", "sort.stable"), _sorted),
    "topk.default": _largest_few,
    "unfold.default": _windows,
    "var_mean.correction": _variance_and_mean,
    **dict.fromkeys(bags.OPERATORS, bags.bagged),
    **counting.CONVERTERS,
    **elementwise.CONVERTERS,
    **linear_algebra.CONVERTERS,
    **linear_systems.CONVERTERS,
    **order_statistics.CONVERTERS,
    **pooling.CONVERTERS,
    **quantised.CONVERTERS,
    **scattering.CONVERTERS,
    **dict.fromkeys(resizing.OPERATORS, resizing.convert),
}
