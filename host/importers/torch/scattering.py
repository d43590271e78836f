"""Values of torch programs that are combined with what is at their places: `scatter` and `index_reduce`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import fx
from tvm import relax

from host.importers.torch.placed import sizes_of

# The arguments of these operators that have to have equal numbers of axes.
_TENSORS = ("self", "index", "src", "source")
_REDUCTIONS = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}


def _scatter(kind: str) -> Any:
    """Values that are written or added at their places; multiplied where the operator says so."""

    def convert(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
        data, axis, index = (given[name] for name in ("self", "dim", "index"))
        source = _source(builder, given)
        if source is None:
            return None
        made = "mul" if given.get("reduce") == "multiply" else kind
        return builder.emit(relax.op.scatter_elements(data, index, source, axis, made))

    return convert


def _scatter_reduce(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """Values combined at their places, with what is there already or (`include_self` is off) without it."""
    data, axis, index, kind = (given[name] for name in ("self", "dim", "index", "reduce"))
    dtype, emit = str(data.ty.dtype), builder.emit
    sizes, covered = sizes_of(data), sizes_of(index)
    if sizes is None or covered is None or (kind == "mean" and not dtype.startswith("float")):
        return None

    def scattered(into: Any, values: Any, reduction: str) -> Any:
        return emit(relax.op.scatter_elements(into, index, values, axis, reduction))

    def filled(number: float, shape: list[int]) -> Any:
        return emit(relax.op.broadcast_to(relax.const(number, dtype), shape))

    start = data
    if not given["include_self"]:
        start = scattered(data, filled(_neutral(kind, dtype), covered), "update")
    made = scattered(start, _source(builder, given), _REDUCTIONS[kind])
    if kind != "mean":
        return made
    own = 1.0 if given["include_self"] else 0.0
    counts = scattered(filled(own, sizes), filled(1.0, covered), "add")
    return emit(relax.op.divide(made, emit(relax.op.maximum(counts, relax.const(1.0, dtype)))))


def _neutral(kind: str, dtype: str) -> float:
    """What changes nothing when it is combined."""
    if kind in ("sum", "mean", "prod"):
        return 1 if kind == "prod" else 0
    if dtype.startswith("float"):
        return -np.inf if kind == "amax" else np.inf
    limits = np.iinfo(dtype)
    return limits.min if kind == "amax" else limits.max


def _source(builder: relax.BlockBuilder, given: Mapping[str, Any]) -> Any:
    """The values for the places, of which one may be for all; values without a place are left out."""
    covered = sizes_of(given["index"])
    if covered is None:
        return given.get("src")
    if "src" in given:
        source = given["src"]
        if sizes_of(source) in (None, covered):
            return source
        axes = list(range(len(covered)))
        return builder.emit(relax.op.strided_slice(source, axes, [0] * len(axes), covered))
    number = relax.const(given["value"], str(given["self"].ty.dtype))
    return builder.emit(relax.op.broadcast_to(number, covered))


def _index_reduce(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """Slices along an axis combined at their places."""
    source, axis = given["source"], given["dim"]
    sizes = sizes_of(source)
    if not sizes:
        return None
    shape = [1] * len(sizes)
    shape[axis] = sizes[axis]
    places = builder.emit(relax.op.reshape(given["index"], shape))
    places = builder.emit(relax.op.broadcast_to(places, sizes))
    return _scatter_reduce(builder, node, {**given, "index": places, "src": source})


def _without_axes(convert: Any) -> Any:
    """The conversion where a tensor has no axes; TVM converts the others."""

    def converted(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
        known = all(len(one.meta["val"].shape) for one in node.all_input_nodes)
        return None if known else convert(builder, node, given)

    return converted


def _gathered(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """Elements at places along an axis."""
    return builder.emit(relax.op.gather_elements(given["self"], given["index"], given["dim"]))


def _with_axes(convert: Any, like: str) -> Any:
    """The conversion of tensors without axes as of such with one, which PyTorch takes them for.

    Args:
        convert: of tensors with axes; asked of all.
        like: the argument whose shape the result has.
    """

    def converted(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
        without = [one for one in _TENSORS if getattr(getattr(given.get(one), "ty", None), "ndim", None) == 0]
        if not without:
            return convert(builder, node, given)
        line = {one: builder.emit(relax.op.reshape(given[one], [1])) for one in without}
        shape = [] if like in without else sizes_of(given[like])
        made = convert(builder, node, {**given, **line})
        return None if made is None else builder.emit(relax.op.reshape(made, shape))

    return converted


CONVERTERS: Mapping[str, Any] = {
    "gather.default": _without_axes(_with_axes(_gathered, "index")),
    "index_reduce.default": _with_axes(_index_reduce, "self"),
    "scatter.src": _with_axes(_scatter("update"), "self"),
    **dict.fromkeys(
        ("scatter_add.default", "scatter.reduce", "scatter.value_reduce"), _with_axes(_scatter("add"), "self")
    ),
    "scatter.value": _without_axes(_with_axes(_scatter("update"), "self")),
    "scatter_reduce.two": _with_axes(_scatter_reduce, "self"),
}
