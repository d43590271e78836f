"""95% bounds of means and ratios from a few repetitions, which are too few for a bootstrap.

All computations use logarithms: times and joules are positive and vary by factors, and a ratio and its
inverse then have inverse bounds. Quantiles are Student's.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

# Fewer repetitions than the protocol asks for give no bound that is worth showing.
MIN_TRIALS = 3
# The one-sided 95% bound over the two-sided one; Student's distribution narrows it a little more.
_ONE_SIDE = 1.645 / 1.960


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95% bounds.

    Attributes:
        value: the figure.
        low, high: its bounds; None if there are too few repetitions.
        n: number of repetitions.
    """

    value: float
    low: float | None = None
    high: float | None = None
    n: int = 1

    @property
    def bounded(self) -> bool:
        """Whether the estimate has confidence bounds; one of a single sample has none."""
        return self.low is not None and self.high is not None

    @property
    def shown_less(self) -> bool:
        """Whether the bounds show that a ratio is below 1."""
        return self.high is not None and self.high < 1.0

    @property
    def shown_more(self) -> bool:
        """Whether the bounds show that a ratio is above 1."""
        return self.low is not None and self.low > 1.0

    def scaled(self, factor: float) -> Estimate:
        """The same in another unit."""
        low = None if self.low is None else self.low * factor
        high = None if self.high is None else self.high * factor
        return Estimate(self.value * factor, low, high, self.n)


@functools.lru_cache(maxsize=1024)
def t975(freedom: int) -> float:
    """Student's 97.5% quantile; below one degree of freedom, that of one."""
    # SciPy has it, and takes longer to load than to judge a deployment.
    freedom = max(freedom, 1)
    low, high = 0.0, math.pi / 2
    while low < (angle := (low + high) / 2) < high:
        low, high = (angle, high) if _within(angle, freedom) < 0.95 else (low, angle)
    return math.sqrt(freedom) * math.tan(high)


def _within(angle: float, freedom: int) -> float:
    """The probability that Student's t is within +-sqrt(freedom) tan(angle).

    For whole degrees of freedom the integral is a finite sum (M. Abramowitz and I. Stegun, "Handbook of
    Mathematical Functions", 1964, 26.7.3 and 26.7.4).
    """
    odd, cosine = freedom % 2, math.cos(angle)
    term, total = cosine if odd else 1.0, 0.0
    for power in range(odd, freedom - 1, 2):
        total += term
        term *= cosine * cosine * (power + 1) / (power + 2)
    total *= math.sin(angle)
    return 2.0 / math.pi * (angle + total) if odd else total


def mean_of(values: Sequence[float]) -> Estimate:
    """The geometric mean of positive repetitions; without bounds if there are fewer than `MIN_TRIALS`.

    Raises:
        ValueError: no values, or one that is not positive.
    """
    logs = _logs(values)
    middle = statistics.fmean(logs)
    if len(logs) < MIN_TRIALS:
        return Estimate(math.exp(middle), n=len(logs))
    half = t975(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return Estimate(math.exp(middle), math.exp(middle - half), math.exp(middle + half), len(logs))


def one_sided_bound(estimate: Estimate) -> float | None:
    """What a positive figure is at least, with a one-sided 95% bound; None if it has no bounds."""
    if estimate.low is None:
        return None
    middle = math.log(estimate.value)
    return math.exp(middle - _ONE_SIDE * (middle - math.log(estimate.low)))


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of positive figures.

    Raises:
        ValueError: no values, or one that is not positive.
    """
    return math.exp(statistics.fmean(_logs(values)))


def paired_ratio(numerator: Sequence[float], denominator: Sequence[float]) -> Estimate:
    """The ratio of figures that were measured in turn; influences that a pair shares cancel.

    Raises:
        ValueError: they do not correspond, or one is not positive.
    """
    if len(numerator) != len(denominator):
        raise ValueError(f"{len(numerator)} and {len(denominator)} figures cannot be paired")
    differences = [a - b for a, b in zip(_logs(numerator), _logs(denominator), strict=True)]
    return mean_of([math.exp(one) for one in differences])


def _logs(values: Sequence[float]) -> list[float]:
    if not values or min(values) <= 0.0 or not all(math.isfinite(value) for value in values):
        raise ValueError("a ratio needs positive figures")
    return [math.log(value) for value in values]


@dataclass(frozen=True)
class Spread:
    """A positive figure and how well it is known, on the logarithm.

    Attributes:
        log: logarithm of the figure.
        variance: of that logarithm, as a mean over repetitions; None with a single repetition.
        n: repetitions.
    """

    log: float
    variance: float | None
    n: int

    @property
    def value(self) -> float:
        """The central value: the exponential of the mean logarithm."""
        return math.exp(self.log)


def spread_of(values: Sequence[float]) -> Spread:
    """The geometric mean of repetitions with its spread.

    Raises:
        ValueError: no values, or one that is not positive.
    """
    logs = _logs(values)
    variance = statistics.variance(logs) / len(logs) if len(logs) > 1 else None
    return Spread(statistics.fmean(logs), variance, len(logs))


def spread_from(mean: float, deviation: float | None, n: int) -> Spread:
    """The same from a mean and a standard deviation, if the repetitions are not available.

    Raises:
        ValueError: the mean is not positive.
    """
    if mean <= 0.0:
        raise ValueError("a ratio needs positive figures")
    variance = None if deviation is None or n < 2 else (deviation / mean) ** 2 / n
    return Spread(math.log(mean), variance, n)


def ratio_of(numerator: Spread, denominator: Spread) -> Estimate:
    """The ratio of two figures that were measured at different times, by Welch's interval.

    The degrees of freedom are those of the smaller side, a conservative choice. There are no bounds if a side
    has fewer than `MIN_TRIALS` repetitions.
    """
    middle = numerator.log - denominator.log
    least = min(numerator.n, denominator.n)
    if numerator.variance is None or denominator.variance is None or least < MIN_TRIALS:
        return Estimate(math.exp(middle), n=least)
    half = t975(least - 1) * math.sqrt(numerator.variance + denominator.variance)
    return Estimate(math.exp(middle), math.exp(middle - half), math.exp(middle + half), least)
