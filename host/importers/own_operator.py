"""Operators that relax has no name for, as calls that the compiler reads by theirs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm import relax

# What the names of all such operators begin with (`host.lowering.reader`).
PREFIX = "edgetlm."


def emit_own(
    builder: relax.BlockBuilder,
    operation: str,
    tensors: Sequence[Any],
    options: Mapping[str, Any],
    types: Sequence[tuple[Sequence[int], str]],
) -> list[Any]:
    """A call of an operation that the compiler has a specification of.

    Args:
        builder: of the function.
        operation: its name in the compiler.
        tensors: what it reads.
        options: all else, which JSON can hold.
        types: shape and type of each output.

    Returns:
        The outputs.
    """
    text = tvm.ir.StringImm(json.dumps(options, sort_keys=True))
    made = [relax.TensorType(tuple(shape), dtype) for shape, dtype in types]
    call = relax.call_dps_packed(
        PREFIX + operation, relax.Tuple([*tensors, text]), made if len(made) > 1 else made[0]
    )
    result = builder.emit(call)
    if len(made) == 1:
        return [result]
    return [builder.emit(relax.TupleGetItem(result, number)) for number in range(len(made))]
