"""The length as an argument of the kernels whose tensors do not have it as a size.

A kernel takes the length from the shapes of its tensors where one of them has an axis of that size. A network
that halves the length has kernels whose tensors are of rounded halves and quarters alone, from which the
length does not follow: they get it as their first argument.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import tvm_ffi
from tvm import relax, tirx

from host.tensor_ir.structural import mapped


def with_length(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """A function over a length that takes the length as its first argument, where no shape gives it."""
    sizes = [size for parameter in function.params for size in getattr(parameter.ty, "shape", ())]
    given = {size for size in sizes if isinstance(size, tirx.Var)} | {
        *function.params[: takes_length(function)]
    }
    for size in sizes:
        for variable in _variables(size):
            if variable not in given:
                parameters = [variable, *function.params]
                return tirx.PrimFunc(parameters, function.body, function.ret_type, function.attrs)
    return function


def takes_length(function: tirx.PrimFunc) -> bool:
    """Whether the length is the first argument of a function."""
    return bool(function.params) and not hasattr(function.params[0].ty, "shape")


def passing_length(main: relax.Function, names: Collection[str], length: tirx.Var) -> relax.Function:
    """A relax function that gives the length to the functions of these names.

    Args:
        main: calls them with tensors alone.
        names: of functions for which `takes_length` holds.
        length: the variable, int64.
    """

    def call(found: relax.Call) -> Any:
        is_call = getattr(found.op, "name", "") == "relax.call_tir"
        if not is_call or found.args[0].name_hint not in names:
            return found
        tensors = relax.Tuple([tirx.Cast("int32", length), *found.args[1].fields])
        return relax.Call(found.op, [found.args[0], tensors], found.attrs, found.ty_args, found.span)

    return mapped(main, (relax.Call, call))


def _variables(size: Any) -> list[tirx.Var]:
    found: list[tirx.Var] = []
    if not isinstance(size, int):
        tvm_ffi.structural_walk(size, (tirx.Var, found.append))
    return found
