"""Which convolutions are products that tensor cores compute: sizes that the rule `cuda_mma` takes.

`host.schedules.cuda.mma` decides by the same numbers which functions it has programs for.
"""

from __future__ import annotations

import math

from host.lowering.graph import Node, Value
from host.lowering.types import within_range

# Of halves, which tensor cores multiply.
_HALF = "float16"
# Least depth: a shorter one is mostly filled up with zeros.
LEAST_STEPS = 16
# Least columns. Tiles have 16; by the estimate they are faster than programs of CUDA cores also where most of
# these are zeros. Groups lie side by side until a tile is full, of 8 columns at least.
LEAST_COLUMNS, LEAST_OF_GROUPS = 2, 8
# Columns of the narrowest tile: narrower groups lie side by side until they fill it.
NARROW = 16


def groups_side_by_side(size: int, columns: int) -> int:
    """Groups of one product.

    Args:
        size: columns of a group.
        columns: of all groups.
    """
    return max(1, min(NARROW, columns) // size)


def is_matrix_product(node: Node) -> bool:
    """Whether tensor cores compute a convolution with packed weights, on a GPU whose tensors are halves."""
    weight = node.inputs[1]
    grouped = node.op == "grouped_conv"
    blocks, *kernel, channels, lanes = weight.shape[1:] if grouped else weight.shape
    steps = math.prod(node.attrs.get("taps", kernel)) * channels
    # Of packed weights: those of a single column have further ones, which are left out.
    size, least = blocks * lanes, LEAST_COLUMNS
    columns = size
    if grouped:
        joined = groups_side_by_side(size, node.output.shape[-1])
        # A group of one column is no product of matrices.
        columns, least = (size * joined if size > 1 else 1), LEAST_OF_GROUPS
        steps *= joined
    return columns >= least and steps >= LEAST_STEPS and _is_half(weight)


def _is_half(weight: Value) -> bool:
    return weight.data is None or within_range(weight.data, _HALF)
