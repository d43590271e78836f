"""Sums or products of all elements up to each one along an axis; attributes `product`, `exclusive`.

The input and the output are (O, A, I), and elements along A are combined in their order. With `exclusive` an
element does not count in its own result. Elements of different O and I have nothing to do with each other:
tiles of I are steps of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from tvm import tirx

from host.lowering.builder import Builder
from host.lowering.graph import Node, Value, normalise_axis
from host.lowering.reader.call import OperatorCall
from host.lowering.script import buffer_text, function_of_script, step_text
from host.lowering.spec import OpSpec, Reader

OPERATION = "running"
# Elements along I of a step.
_TILE = 512
# Operations that the elements of a step wait for, and those of an element in vectors.
_WAITS, _OF_VECTOR = 4, 0.25


def _reader(product: bool) -> Reader:
    def read(builder: Builder, call: OperatorCall) -> Value | None:
        """A tensor without elements, and truth values, are left to TVM."""
        if not prod(call.shape) or call.dtype == "bool":
            return None
        value, axis = builder.cast(call.value(0), call.dtype), call.attrs.axis
        shape = value.shape if axis is not None else (value.size,)
        at = normalise_axis(int(axis), len(shape)) if axis is not None else 0
        sizes = (prod(shape[:at]), shape[at], prod(shape[at + 1 :]))
        attrs = {"product": product, "exclusive": bool(call.attrs.exclusive)}
        made = builder.one(OPERATION, [builder.reshape(value, sizes)], sizes, call.dtype, **attrs)
        return builder.reshape(made, call.shape)

    return read


def running_function(node: Node) -> tirx.PrimFunc:
    """The function of a "running" node; arguments are its input and then its output."""
    return function_of_script(_text(node))


def _text(node: Node) -> str:
    """TVMScript of the function: row by row, with what is combined so far beside."""
    outer, size, inner = node.output.shape
    tile, dtype = min(_TILE, inner), node.output.dtype
    sign, start = ("*", 1) if node.attrs["product"] else ("+", 0)
    place = f"vo, a, vt * {_TILE} + i"
    lines = [f"held[i] = held[i] {sign} data[{place}]", f"result[{place}] = held[i]"]
    first, second = reversed(lines) if node.attrs["exclusive"] else lines
    region = f"vo, 0:{size}, vt * {_TILE} : vt * {_TILE} + {tile}"
    return f"""
@T.prim_func(s_tir=True, private=True)
def function(data: {buffer_text(node.inputs[0])}, result: {buffer_text(node.output)}) -> None:
    for o, t in T.grid({outer}, {-(-inner // _TILE)}):
        with T.sblock("running"):
            vo, vt = T.axis.remap("SS", [o, t])
            {step_text(_WAITS / tile + _OF_VECTOR, "data")}
            T.reads(data[{region}])
            T.writes(result[{region}])
            held = T.sblock_alloc_buffer(({tile},), "{dtype}", scope="local")
            for i in range({tile}):
                held[i] = T.{dtype}({start})
            for a in range({size}):
                for i in range(T.min({_TILE}, {inner} - vt * {_TILE})):
                    {first}
                    {second}
"""


def _folded(
    inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: tuple[int, ...], dtype: str
) -> np.ndarray | None:
    """Of those that leave no element out."""
    if attrs["exclusive"]:
        return None
    function = np.cumprod if attrs["product"] else np.cumsum
    return np.asarray(function(inputs[0], axis=1, dtype=dtype))


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        OPERATION,
        read={"cumsum": _reader(product=False), "cumprod": _reader(product=True)},
        function=running_function,
        fold=_folded,
        on_cpu=True,
    ),
)
