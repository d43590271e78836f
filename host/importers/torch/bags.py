"""Rows of a table that are added up bag by bag, as torch's EmbeddingBag."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from torch import fx
from tvm import relax

from host.importers.torch.placed import sizes_of

OPERATORS = ("_embedding_bag.default", "_embedding_bag_forward_only.default")
# By torch's number of the mode.
_REDUCTIONS = {0: relax.op.sum, 1: relax.op.mean, 2: relax.op.max}


def bagged(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """The sum, mean or maximum (B, D) of the rows of each bag, where the bags are equally large.

    They are where a matrix of indices has a bag in each row. None where the offsets are not known or bags
    differ, where rows are left out as padding, and where the results for training are used.
    """
    numbers, emit = given["indices"], builder.emit
    shape, sizes = (
        _bags(given["offsets"], sizes_of(numbers), given["include_last_offset"]),
        sizes_of(given["weight"]),
    )
    if shape is None or sizes is None or given["padding_idx"] >= 0 or _is_training(node):
        return None
    rows = emit(relax.op.take(given["weight"], numbers, 0, mode="clip"))
    if given["per_sample_weights"] is not None:
        rows = emit(relax.op.multiply(rows, emit(relax.op.expand_dims(given["per_sample_weights"], 1))))
    bags = emit(relax.op.reshape(rows, (*shape, sizes[-1])))
    return emit(_REDUCTIONS[given["mode"]](bags, 1)), None, None, None


def _bags(offsets: Any, sizes: list[int] | None, last_included: bool) -> tuple[int, int] | None:
    """How many bags there are, and how many rows each has."""
    if not isinstance(offsets, tvm.ir.GenericConst) or not sizes or not sizes[0]:
        return None
    begins = offsets.value.numpy()
    if last_included:
        # Rows behind the last offset are in no bag.
        if not len(begins) or begins[-1] != sizes[0]:
            return None
        begins = begins[:-1]
    count = len(begins)
    if not count or sizes[0] % count or (begins != np.arange(count) * (sizes[0] // count)).any():
        return None
    return count, sizes[0] // count


def _is_training(node: fx.Node) -> bool:
    """Whether anything reads more than the bags: which rows they had, and how many."""
    return any(
        user.target is not operator.getitem or (user.args[1] != 0 and bool(user.users)) for user in node.users
    )
