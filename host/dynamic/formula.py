"""Numbers that depend on a length: their values at several lengths determine them at every length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Units that lowering and schedules round up to: vectors of 2 to 64 elements.
UNITS = (16, 8, 4, 32, 2, 64)


@dataclass(frozen=True)
class Formula:
    """square * n^2 + linear * n + constant, and terms of r = ceil(step * n / unit).

    These are units * r + unit_rows * n * r + unit_squares * r^2.

    All coefficients are integers, so that the value is one at every length.
    """

    linear: int = 0
    constant: int = 0
    square: int = 0
    units: int = 0
    unit_rows: int = 0
    unit_squares: int = 0
    unit: int = 1
    step: int = 1

    def at(self, length: int) -> int:
        """The value of the formula at one length."""
        rounded = -(-length * self.step // self.unit)
        return (
            self.square * length * length
            + self.linear * length
            + self.constant
            + self.units * rounded
            + self.unit_rows * length * rounded
            + self.unit_squares * rounded * rounded
        )

    def expression(self, length: Any) -> Any:
        """The same over a TensorIR variable or expression of an integer type."""
        total: Any = 0
        if self.square:
            total = length * length * self.square
        if self.linear:
            total = total + length * self.linear
        if self.units or self.unit_rows or self.unit_squares:
            rounded = (length * self.step + (self.unit - 1)) // self.unit
            if self.units:
                total = total + rounded * self.units
            if self.unit_rows:
                total = total + length * rounded * self.unit_rows
            if self.unit_squares:
                total = total + rounded * rounded * self.unit_squares
        return total + self.constant if self.constant else total

    @property
    def is_rounded(self) -> bool:
        """Whether the value has terms of r, a rounded part of the length."""
        return bool(self.units or self.unit_rows or self.unit_squares)

    @property
    def is_constant(self) -> bool:
        """Whether the length does not matter."""
        return not (self.linear or self.square or self.units or self.unit_rows or self.unit_squares)


def fit(values: Mapping[int, int]) -> Formula | None:
    """The simplest formula that gives a number at every length where it is known; None if there is none.

    Args:
        values: the number by length; each length beyond those that a formula needs checks it.
    """
    lengths = sorted(values)
    numbers = [values[length] for length in lengths]
    if len(set(numbers)) == 1:
        return Formula(constant=numbers[0])
    for candidate in _candidates(lengths, numbers):
        if candidate is not None and all(candidate.at(length) == values[length] for length in lengths):
            return candidate
    return None


def _candidates(lengths: Sequence[int], numbers: Sequence[int]) -> Iterator[Formula | None]:
    yield _line(lengths, numbers, lambda n: n, lambda a, c: Formula(linear=a, constant=c))
    for unit in UNITS:
        yield _line(lengths, numbers, _rounded(unit), _in_units(unit))
    if len(lengths) < 3:
        return
    yield _line(lengths, numbers, lambda n: n * n, lambda a, c: Formula(square=a, constant=c))
    if len(lengths) > 3:
        yield _parabola(lengths, numbers)
    for unit in UNITS:
        yield _line(lengths, numbers, _rows(unit), _in_unit_rows(unit))
    for unit in UNITS:
        yield _in_steps(lengths, numbers, unit)
    for unit in UNITS:
        yield _line(lengths, numbers, _unit_squares(unit), _in_unit_squares(unit))


def _rounded(unit: int) -> Callable[[int], int]:
    return lambda n: -(-n // unit)


def _rows(unit: int) -> Callable[[int], int]:
    return lambda n: n * -(-n // unit)


def _unit_squares(unit: int) -> Callable[[int], int]:
    return lambda n: (-(-n // unit)) ** 2


def _in_unit_squares(unit: int) -> Callable[[int, int], Formula]:
    return lambda a, c: Formula(unit_squares=a, constant=c, unit=unit)


def _in_units(unit: int) -> Callable[[int, int], Formula]:
    return lambda a, c: Formula(units=a, constant=c, unit=unit)


def _in_unit_rows(unit: int) -> Callable[[int, int], Formula]:
    return lambda a, c: Formula(unit_rows=a, constant=c, unit=unit)


def _line(
    lengths: Sequence[int],
    numbers: Sequence[int],
    basis: Callable[[int], int],
    make: Callable[[int, int], Formula],
) -> Formula | None:
    """Slope * basis(n) + constant through the first two lengths at which the basis differs."""
    first = basis(lengths[0])
    other = next((i for i, length in enumerate(lengths) if basis(length) != first), None)
    if other is None:
        return None
    slope, rest = divmod(numbers[other] - numbers[0], basis(lengths[other]) - first)
    return None if rest else make(slope, numbers[0] - slope * first)


def _in_steps(lengths: Sequence[int], numbers: Sequence[int], unit: int) -> Formula:
    """ceil(step * n / unit) + constant, with the step that the first and the last number suggest."""
    step = round((numbers[-1] - numbers[0]) * unit / (lengths[-1] - lengths[0]))
    return Formula(units=1, step=step, unit=unit, constant=numbers[0] + (-lengths[0] * step // unit))


def _parabola(lengths: Sequence[int], numbers: Sequence[int]) -> Formula | None:
    (a, b, c), (x, y, z) = lengths[:3], numbers[:3]
    square, rest = divmod((z - x) * (b - a) - (y - x) * (c - a), (c - a) * (b - a) * (c - b))
    if rest:
        return None
    linear, rest = divmod(y - x - square * (b * b - a * a), b - a)
    if rest:
        return None
    return Formula(square=square, linear=linear, constant=x - square * a * a - linear * a)
