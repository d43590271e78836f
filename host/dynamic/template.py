"""Programs that differ in numbers only, as one program whose numbers are formulas in a length.

TVM's structural map visits the numbers of equal structures in the same order, so a number is known by its
place in that order. What was fitted is put back at every length it was fitted from and compared structure by
structure: nothing is taken on trust.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import tvm_ffi
from tvm import tirx

from host.dynamic.formula import Formula, fit
from host.errors import LoweringError
from host.tensor_ir.structural import mapped


@dataclass(frozen=True)
class Share:
    """A float that is a fixed part of the length: numerator / (parts * n), as in a mean."""

    numerator: float
    parts: int = 1

    def at(self, length: int) -> float:
        """The value at one length."""
        return self.numerator / (self.parts * length)

    def of_parts(self, size: int) -> Share:
        """The same in a number that is `size` times as large."""
        common = math.gcd(self.parts, size)
        return Share(self.numerator * (size // common), self.parts // common)

    def expression(self, length: Any) -> Any:
        """The same over a TensorIR expression of a floating-point type."""
        dtype = str(length.ty.dtype)
        whole = length if self.parts == 1 else length * tirx.const(self.parts, dtype)
        return tirx.const(self.numerator, dtype) / whole


@dataclass(frozen=True, eq=False)
class Template:
    """A program over a length.

    Attributes:
        base: the program at one length.
        slots: formula by place, for every number that the length changes.
    """

    base: Any
    slots: Mapping[int, Formula | Share] = field(default_factory=dict)

    def at(self, length: int) -> Any:
        """The program at one length, as lowering would write it for that length."""
        return self._mapped(lambda number, slot: _literal(number, slot.at(length)))

    def over(self, length: Any) -> Any:
        """The program over a TensorIR variable or expression of an integer type."""
        return self._mapped(lambda number, slot: _symbolic(number, slot, length))

    def with_slots(self, changed: Mapping[int, Formula | Share]) -> Template:
        """The same program with other formulas in these places."""
        return Template(self.base, changed)

    def _mapped(self, replace: Any) -> Any:
        place = -1

        def visit(number: Any) -> Any:
            nonlocal place
            place += 1
            slot = self.slots.get(place)
            return number if slot is None else replace(number, slot)

        made = mapped(self.base, ((tirx.IntImm, tirx.FloatImm), visit))
        # The map leaves the type that a function derived from its parameters.
        if isinstance(made, tirx.PrimFunc):
            return tirx.PrimFunc(made.params, made.body, made.ret_type, made.attrs)
        return made


def numbers_of(program: Any) -> list[Any]:
    """The integer and float literals of a program, in the order of the structural map."""
    found: list[Any] = []

    def visit(number: Any) -> Any:
        found.append(number)
        return number

    mapped(program, ((tirx.IntImm, tirx.FloatImm), visit))
    return found


def unify(programs: Mapping[int, Any], what: str) -> Template:
    """One template of the same program at several lengths.

    Args:
        programs: by length.
        what: name of the program, for messages.

    Raises:
        LoweringError: the programs differ in more than numbers, or in a number that no formula explains.
    """
    lengths = sorted(programs)
    columns = {length: numbers_of(programs[length]) for length in lengths}
    if len({len(numbers) for numbers in columns.values()}) != 1:
        raise LoweringError(_different(what, lengths, "its structure changes with the length"))
    slots: dict[int, Formula | Share] = {}
    for place in range(len(columns[lengths[0]])):
        values = {length: columns[length][place].value for length in lengths}
        if len(set(values.values())) == 1:
            continue
        found = _explained(values)
        if found is None:
            shown = ", ".join(str(value) for value in values.values())
            raise LoweringError(_different(what, lengths, f"no formula gives {shown}"))
        slots[place] = found
    template = Template(programs[lengths[0]], slots)
    for length in lengths:
        if not tvm_ffi.structural_equal(template.at(length), programs[length]):
            raise LoweringError(_different(what, lengths, "its structure changes with the length"))
    return template


def _different(what: str, lengths: list[int], reason: str) -> str:
    text = ", ".join(map(str, lengths))
    return f"{what} is not one program over a range (at {text}: {reason}): give one length with --shape"


def _explained(values: Mapping[int, int | float]) -> Formula | Share | None:
    whole = {length: value for length, value in values.items() if isinstance(value, int)}
    if len(whole) == len(values):
        return fit(whole)
    length, value = next(iter(values.items()))
    numerator = value * length
    if not numerator:
        return None
    # Literals carry the precision of float32 at least.
    shares = (Share(float(round(numerator))), Share(1.0, round(1 / numerator)), Share(numerator))
    return next((share for share in shares if _is_share(share, values)), None)


def _is_share(share: Share, values: Mapping[int, int | float]) -> bool:
    if not share.numerator or not share.parts:
        return False
    return all(abs(share.at(n) - value) <= 1e-6 * abs(value) for n, value in values.items())


def _literal(number: Any, value: int | float) -> Any:
    kind = tirx.IntImm if isinstance(number, tirx.IntImm) else tirx.FloatImm
    return kind(str(number.ty.dtype), value)


def _symbolic(number: Any, slot: Formula | Share, length: Any) -> Any:
    dtype = str(number.ty.dtype)
    same = dtype == str(length.ty.dtype)
    length = length if same else tirx.Cast(dtype, length)
    if isinstance(slot, Formula) and slot.is_constant:
        return tirx.IntImm(dtype, slot.constant)
    return slot.expression(length)
