"""The front of latency and energy: the points that no other point beats in both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from host.compare.entrants import EntrantResult
from host.model import Energy, comparable


@dataclass(frozen=True)
class ParetoFront:
    """The points that no other point beats in both latency and energy.

    Attributes:
        points: all points that were compared, in the given order.
        front: the undominated points, fastest first.
        dominated: for each other point, a point that is better in one figure and no worse in the other.
        reason: why there is no front; "" if there is one.
    """

    points: tuple[EntrantResult, ...]
    front: tuple[EntrantResult, ...] = ()
    dominated: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""


def pareto(points: Sequence[EntrantResult]) -> ParetoFront:
    """The front of latency and gross energy.

    A point is dominated if another point is no worse in both figures and better in one; points that are equal
    in both stay. Throttled points and points without energy are left out. Bounds are ignored: the bars in the
    report show which points are within noise of the front.

    Args:
        points: of one boundary.
    """
    known = [point for point in points if point.trusted and point.gross_j is not None and point.latency_s]
    if not known:
        return ParetoFront(tuple(points), reason=_no_front(points))
    mixed = next(filter(None, (comparable(_energy(known[0]), _energy(one)) for one in known)), None)
    if mixed is not None:
        return ParetoFront(tuple(points), reason=mixed)
    ordered = sorted(known, key=_pair)
    front: list[EntrantResult] = []
    dominated: dict[str, str] = {}
    for point in ordered:
        better = next((one for one in front if _dominates(_pair(one), _pair(point))), None)
        if better is None:
            front.append(point)
        else:
            dominated[point.title] = better.title
    return ParetoFront(tuple(points), tuple(front), dominated)


def _no_front(points: Sequence[EntrantResult]) -> str:
    energies = [point.energy for point in points if point.energy is not None]
    missing = [energy.reason or energy.source for energy in energies if energy.gross_j is None]
    if missing or not energies:
        return next(iter(missing), "nothing was measured")
    return "the board throttled in every measurement"


def _energy(point: EntrantResult) -> Energy:
    assert point.energy is not None
    return point.energy


def _pair(point: EntrantResult) -> tuple[float, float]:
    assert point.latency_s is not None and point.gross_j is not None
    return point.latency_s.value, point.gross_j.value


def _dominates(a: tuple[float, float], b: tuple[float, float]) -> bool:
    return a[0] <= b[0] and a[1] <= b[1] and a != b
