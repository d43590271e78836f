"""Functions that are written as text of TVMScript, for what TE cannot say."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx

from host.lowering.graph import Value
from host.lowering.types import numeric_type

# Annotations of a block: that its inside is not read, and about how many operations its steps take.
WHOLE, OPERATIONS = "edgetlm.whole", "edgetlm.operations"


def function_of_script(text: str, standalone: bool = True, **names: Any) -> tirx.PrimFunc:
    """The function of a text.

    Args:
        text: of one function; `T` is TVM's module of TensorIR. No arguments share memory.
        standalone: whether it uses no buffers of another function, whose body it is to be otherwise.
        names: what else the text names.
    """
    extra = {"T": tvm.script.tirx, **names}
    return tvm.script.from_source(text, extra_vars=extra, check_well_formed=standalone).with_attr(
        "tirx.noalias", True
    )


def buffer_text(value: Value) -> str:
    """How a text writes the buffer of a tensor."""
    sizes = ", ".join(map(str, value.shape))
    return f'T.Buffer(({sizes},), "{value.dtype}")'


def step_text(operations: float, buffer: str) -> str:
    """How a text says that a block is an algorithm of several statements.

    Args:
        operations: that a processor takes for each element of a buffer, about. It is no number of a length
            that may be open.
        buffer: the name of an argument.
    """
    return f'T.sblock_attr({{"{WHOLE}": 1, "{OPERATIONS}": "{buffer} {operations:.3g}"}})'


def extreme_text(kind: str, held: str, other: str, dtype: str) -> str:
    """How a text writes the larger ("max") or the smaller ("min") of two numbers; `held` of equal ones.

    It is NaN where one is, as in PyTorch. The conditions are opaque (`host.tensor_ir.opaque`).
    """
    low, high = (other, held) if kind == "max" else (held, other)
    text = f"T.Select({_opaque_text(f'{low} <= {high}')}, {held}, {other})"
    if not numeric_type(dtype).is_float:
        return text
    is_number = _opaque_text(f'{held} <= T.{dtype}("inf")')
    return f"T.Select({is_number}, {text}, {held})"


def _opaque_text(condition: str) -> str:
    return f"T.bitwise_and({condition}, T.bool(True))"
