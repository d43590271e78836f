"""Each function of a model over its own length, which is the model's or a rounded part of it.

A network that halves the length has functions whose tensors have axes of ceil(n / 2), ceil(n / 4) and so on.
Over m = ceil(n / unit) such a function is one like any other, with axes of m and multiples of it; over n
all its numbers are rounded. Where no shape gives m (an image of 8 rows has 8 m pixels), m is an argument.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import tvm_ffi
from tvm import relax, tirx

from host.dynamic.formula import UNITS, Formula
from host.dynamic.template import Template, unify
from host.errors import LoweringError
from host.tensor_ir.structural import mapped

# Different lengths from which a function is generalised: a line, and one that checks it.
_FEWEST = 3


def over_own_length(programs: Mapping[int, tirx.PrimFunc], what: str) -> tuple[Template, int]:
    """A function over its own length, out of those at several lengths of the model.

    Args:
        programs: by length n of the model.
        what: name, for messages.

    Returns:
        The template over m, and the unit: m = ceil(n / unit). The unit is 1 where no other is simpler.

    Raises:
        LoweringError: the programs differ in more than numbers, or in a number that no formula explains.
    """
    plain, refused = None, None
    try:
        plain = unify(programs, what)
        if not rounds(plain):
            return plain, 1
    except LoweringError as error:
        refused = error
    usable = []
    for unit in sorted(UNITS):
        template = _in_units(programs, unit, what)
        if template is None:
            continue
        if not rounds(template):
            return template, unit
        # Odd lengths alone do not show how halves are rounded.
        if has_length(template) and len({own_length(n, unit) % 2 for n in programs}) == 2:
            usable.append((template, unit))
    if plain is not None and (has_length(plain) or not usable):
        return plain, 1
    if usable:
        return usable[0]
    assert refused is not None
    raise refused


def _in_units(programs: Mapping[int, tirx.PrimFunc], unit: int, what: str) -> Template | None:
    """The function over m; None where equal m have different programs, or too few lengths are known."""
    by_length: dict[int, tirx.PrimFunc] = {}
    for length, program in sorted(programs.items()):
        known = by_length.setdefault(own_length(length, unit), program)
        if known is not program and not tvm_ffi.structural_equal(known, program, map_free_vars=True):
            return None
    if len(by_length) < _FEWEST or _on_a_line(programs, unit):
        return None
    try:
        return unify(by_length, what)
    except LoweringError:
        return None


def _on_a_line(lengths: Collection[int], unit: int) -> bool:
    """Whether m is a line in n at these lengths, so that a number of n would look like one of m."""
    (a, b, *rest) = sorted(lengths)
    rise = own_length(b, unit) - own_length(a, unit)
    return all((own_length(c, unit) - own_length(a, unit)) * (b - a) == rise * (c - a) for c in rest)


def own_length(length: int, unit: int) -> int:
    """The length of a function at a length of the model: ceil(length / unit)."""
    return -(-length // unit)


def rounds(template: Template) -> bool:
    """Whether a number of a template is of rounded parts of its length."""
    return any(isinstance(slot, Formula) and slot.is_rounded for slot in template.slots.values())


def has_length(template: Template) -> bool:
    """Whether a tensor among the parameters has an axis of the length itself, from which a call takes it."""
    length = tirx.Var("length", "int32")
    return any(size is length or size.same_as(length) for size in _sizes(template.over(length)))


def with_length(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """A function over a length that takes the length as its first argument, where no shape gives it."""
    sizes = _sizes(function)
    given = {size for size in sizes if isinstance(size, tirx.Var)} | {
        *function.params[: takes_length(function)]
    }
    found: list[tirx.Var] = []
    for size in sizes:
        tvm_ffi.structural_walk(size, (tirx.Var, found.append))
    for variable in found:
        if variable not in given:
            parameters = [variable, *function.params]
            return tirx.PrimFunc(parameters, function.body, function.ret_type, function.attrs)
    return function


def takes_length(function: tirx.PrimFunc) -> bool:
    """Whether the length is the first argument of a function."""
    return bool(function.params) and not hasattr(function.params[0].ty, "shape")


def passing_length(main: relax.Function, units: Mapping[str, int], length: tirx.Var) -> relax.Function:
    """A relax function that gives functions their lengths.

    Args:
        main: calls them with tensors alone.
        units: of the functions for which `takes_length` holds, by name.
        length: the model's, int64.
    """

    def call(found: relax.Call) -> Any:
        is_call = getattr(found.op, "name", "") == "relax.call_tir"
        if not is_call or found.args[0].name_hint not in units:
            return found
        unit = units[found.args[0].name_hint]
        own = length if unit == 1 else (length + (unit - 1)) // unit
        tensors = relax.Tuple([tirx.Cast("int32", own), *found.args[1].fields])
        return relax.Call(found.op, [found.args[0], tensors], found.attrs, found.ty_args, found.span)

    return mapped(main, (relax.Call, call))


def _sizes(function: tirx.PrimFunc) -> list[Any]:
    """The sizes of the tensors among the parameters."""
    return [size for parameter in function.params for size in getattr(parameter.ty, "shape", ())]
