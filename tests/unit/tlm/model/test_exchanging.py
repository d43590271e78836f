"""Wholes that are put together of known parts by what they cost."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from host.tlm.model.exchanging import exchanged

_pools = st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=4), min_size=1, max_size=3)


@given(_pools)
def test_where_costs_add_up_the_best_of_all_combinations_comes_first(pools: list[list[int]]) -> None:
    begin = [pool[-1] for pool in pools]
    found = exchanged(begin, pools, sum)
    assert sum(found[0]) == min(map(sum, itertools.product(*pools)))
    assert list(map(sum, found)) == sorted(map(sum, found))
    assert begin in found


def test_what_is_better_with_the_others_as_they_are_stays() -> None:
    asked: list[tuple[str, ...]] = []

    def cost(parts: tuple[str, ...] | list[str]) -> float:
        asked.append(tuple(parts))
        # The second part is good with the first one's other choice alone.
        return {("a", "b"): 3.0, ("A", "b"): 2.0, ("A", "B"): 1.0}.get(tuple(parts), 9.0)

    assert exchanged(["a", "b"], [["A"], ["B"]], cost)[0] == ["A", "B"]
    assert ("a", "B") not in asked
