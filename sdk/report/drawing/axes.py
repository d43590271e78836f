"""From values to pixels: numbers on a linear or logarithmic axis, and names in bands."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

_PADDING = 0.05


@dataclass(frozen=True)
class Axis:
    """Numbers between two pixels.

    Attributes:
        low, high: values at both ends.
        begin, end: their pixels.
        log: whether distances are ratios.
    """

    low: float
    high: float
    begin: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """The pixel of a value."""
        low, high, here = (
            (math.log10(self.low), math.log10(self.high), math.log10(value))
            if self.log
            else (self.low, self.high, value)
        )
        return self.begin + (here - low) / (high - low) * (self.end - self.begin)

    def shows(self, value: float | None) -> bool:
        """Whether a value has a pixel: it is finite, and above zero on a logarithmic axis."""
        return value is not None and math.isfinite(value) and (value > 0 or not self.log)

    def ticks(self, most: int) -> list[float]:
        """Round values on the axis, about `most` of them."""
        return _log_ticks(self.low, self.high, most) if self.log else _ticks(self.low, self.high, most)


@dataclass(frozen=True)
class Bands:
    """Names from the first pixel to the last, each in a band of its own.

    Attributes:
        names: in their order.
        begin, end: pixels.
    """

    names: tuple[str, ...]
    begin: float
    end: float

    @property
    def size(self) -> float:
        """Width of a band in pixels."""
        return (self.end - self.begin) / max(1, len(self.names))

    def middle(self, name: str) -> float:
        """The pixel in the middle of a name's band."""
        return self.begin + self.size * (self.names.index(name) + 0.5)


def span(values: Iterable[float], *, log: bool, zero: bool) -> tuple[float, float]:
    """The ends of an axis that shows all values with a margin.

    Args:
        values: those that have a pixel; without any the axis is that of 0 to 1.
        log: whether the axis is logarithmic.
        zero: whether it begins at zero where no value is less.
    """
    known = list(values) or [1.0]
    low, high = min(known), max(known)
    if log:
        factor = max((high / low) ** _PADDING, 1.1)
        return low / factor, high * factor
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if high == low:
        return (0.0, 1.0) if high == 0 else (low - abs(low) / 2, high + abs(high) / 2)
    room = _PADDING * (high - low)
    return (low if zero and low == 0 else low - room), (high if zero and high == 0 else high + room)


def _ticks(low: float, high: float, most: int) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / max(1, most)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [index * step for index in range(first, last + 1)] if last > first else _ticks(low, high, 2 * most)


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    """Powers of ten, with 2 and 5 times them between where there is room."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    stride = max(1, math.ceil((last - first) / max(1, most)))
    factors = (1, 2, 5) if 3 * (last - first) <= 1.5 * most else (1,)
    values = [factor * 10.0**power for power in range(first, last + 1, stride) for factor in factors]
    inside = [value for value in values if low <= value <= high]
    return inside or [float(f"{value:.2g}") for value in (low, high)]
