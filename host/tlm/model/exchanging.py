"""Programs whose parts are decided apart, put together of known parts by what they cost together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

_Part = TypeVar("_Part")


def exchanged(
    begin: Sequence[_Part],
    pools: Sequence[Sequence[_Part]],
    cost: Callable[[Sequence[_Part]], float],
) -> list[list[_Part]]:
    """Wholes with other parts in the place of those of one, the whole that costs least first.

    Each part in turn is exchanged for every one of its pool, and then stays the one that costs least with the
    others as they are then. Where costs of parts add up, the first whole is the best of all combinations.

    Args:
        begin: the parts of a whole.
        pools: other parts in the place of each.
        cost: of a whole.
    """
    parts = list(begin)
    seen: list[tuple[float, list[_Part]]] = []
    for number, pool in enumerate(pools):
        wholes = [[*parts[:number], one, *parts[number + 1 :]] for one in (parts[number], *pool)]
        costs = list(map(cost, wholes))
        seen += zip(costs, wholes, strict=True)
        parts = wholes[min(range(len(costs)), key=costs.__getitem__)]
    return [whole for _, whole in sorted(seen, key=lambda one: one[0])]
