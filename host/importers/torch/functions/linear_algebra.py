"""Norms and distances of torch programs."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

import numpy as np
from torch import fx
from tvm import relax

from host.importers.torch.placed import sizes_of


def norm(builder: relax.BlockBuilder, data: Any, power: float, axes: list[int] | None, keep: bool) -> Any:
    """The norm of a power of the elements over some axes, or over all; of 0, how many are not 0."""
    emit, op, dtype = builder.emit, relax.op, str(data.ty.dtype)
    if power == 0:
        present = emit(op.not_equal(data, relax.const(0, dtype)))
        return emit(op.sum(emit(op.astype(present, dtype)), axes, keep))
    if power == 2:
        return emit(op.sqrt(emit(op.sum(emit(op.multiply(data, data)), axes, keep))))
    sizes = emit(op.abs(data))
    if abs(power) == inf:
        return emit((op.max if power > 0 else op.min)(sizes, axes, keep))
    if power == 1:
        return emit(op.sum(sizes, axes, keep))
    total = emit(op.sum(emit(op.power(sizes, relax.const(power, dtype))), axes, keep))
    return emit(op.power(total, relax.const(1 / power, dtype)))


def _vector_norm(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """The norm of vectors along some axes, computed in the type that the program asks for."""
    dtype = str(node.meta["val"].dtype).removeprefix("torch.")
    data = builder.emit(relax.op.astype(given["self"], dtype))
    # As in torch, no axes are all axes.
    axes = list(given["dim"]) if given["dim"] else None
    return norm(builder, data, float(given["ord"]), axes, given["keepdim"])


def _distances(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """Distances of each row of one tensor from each of another, by the norm of the power `p`."""
    emit = builder.emit
    rows = emit(relax.op.expand_dims(given["x1"], -2)), emit(relax.op.expand_dims(given["x2"], -3))
    return norm(builder, emit(relax.op.subtract(*rows)), float(given["p"]), [-1], False)


def _distances_within(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """Distances of each row from each later one, one after another."""
    data, sizes, emit = given["self"], sizes_of(given["self"]), builder.emit
    if sizes is None:
        return None
    pairs = (relax.const(one, "int64") for one in np.triu_indices(sizes[0], 1))
    rows = [emit(relax.op.take(data, one, 0, mode="clip")) for one in pairs]
    return norm(builder, emit(relax.op.subtract(*rows)), float(given["p"]), [-1], False)


CONVERTERS: Mapping[str, Any] = {
    "_cdist_forward.default": _distances,
    "_pdist_forward.default": _distances_within,
    "linalg_vector_norm.default": _vector_norm,
}
