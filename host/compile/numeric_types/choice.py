"""Which groups of layers stay in fp32: as few as the tolerance asks for, and those that lose time in halves.

Estimates first: what each group saves in half precision where all others have it. Groups that save nothing
stay in fp32. If the rest is too far off, each group is measured alone in half precision, and the groups that
lose most for what they save go back to fp32, as few as are needed (`host.quantisation.search`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from host.quantisation.search import least_kept

# Groups, by number, that compute in fp32.
Kept = frozenset[int]


@dataclass(frozen=True)
class TypeChoice:
    """The groups that stay in fp32.

    Attributes:
        kept: the groups; all of them where the model is to be in fp32.
        saved_s: estimated seconds that each group saves in half precision where all others have it.
        why_single: why the model is to be in fp32; "" where some groups are in half precision.
        alone: error of the outputs where one group alone is in half precision, for the groups that were
            measured so.
    """

    kept: Kept
    saved_s: tuple[float, ...]
    why_single: str = ""
    alone: Mapping[int, float] = field(default_factory=dict)


def choose_kept(
    groups: int,
    seconds: Callable[[Kept], float],
    error: Callable[[Kept], float],
    single_s: float,
    tolerance: float,
) -> TypeChoice:
    """The choice that is estimated to be the fastest of those within the tolerance.

    The errors of at most n + 2 log2(n) + 1 choices are measured, those of one where no group is too far off.

    Args:
        groups: number n of them, at least one.
        seconds: estimated seconds of a run with some groups in fp32.
        error: measured error of the outputs with some groups in fp32.
        single_s: estimated seconds of the model compiled in fp32 as a whole.
        tolerance: the largest error.
    """
    numbers, none, every = range(groups), frozenset[int](), frozenset(range(groups))
    half_s = seconds(none)
    saved = tuple(seconds(frozenset({number})) - half_s for number in numbers)
    start = frozenset(number for number in numbers if saved[number] <= 0.0)
    # What groups save does not add up where they are neighbours.
    if start == every or seconds(start) > half_s:
        start = none
    if seconds(start) >= single_s:
        return TypeChoice(every, saved, "it is estimated to save no time")
    if error(start) <= tolerance:
        return TypeChoice(start, saved)
    alone = {number: error(every - {number}) for number in numbers if number not in start}
    order = sorted(alone, key=lambda number: -_loss_for_time(alone[number], saved[number]))
    found = least_kept(order, lambda kept: error(start.union(kept)), tolerance)
    if found is None:
        return TypeChoice(every, saved, "no layer that would save time is within the tolerance", alone)
    kept = start.union(found.kept)
    if seconds(kept) >= single_s:
        return TypeChoice(every, saved, "what the tolerance allows is estimated to save no time", alone)
    return TypeChoice(kept, saved, "", alone)


def _loss_for_time(error: float, saved_s: float) -> float:
    """Error for each second that is saved; the worst where nothing is saved or the error is not finite."""
    return error / saved_s if math.isfinite(error) and saved_s > 0.0 else math.inf
