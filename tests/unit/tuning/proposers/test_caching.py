from __future__ import annotations

from typing import Any

from host.gensor import Gensor
from host.model import Candidate
from host.tuning.proposers.caching import CachingProposer
from tests.unit.tuning.simulated import dense_space, measured, profile


class Counted:
    """Gensor, counting how often it walks; with an end to its programs."""

    name = "gensor"

    def __init__(self, most: int = 10_000) -> None:
        self.calls = 0
        self.most = most

    def propose(self, space: Any, profile: Any, history: Any, k: int, seed: int) -> list[Candidate]:
        self.calls += 1
        return Gensor().propose(space, profile, (), min(k, self.most), 0 if self.most < 100 else seed)


def test_one_walk_serves_many_requests_in_its_order() -> None:
    space, inner = dense_space(), Counted()
    pooled = CachingProposer(inner)
    expected = Gensor().propose(space, profile(), (), 32, 0)
    history: list[Any] = []
    for batch in range(8):
        proposed = pooled.propose(space, profile(), history, 4, batch)
        assert proposed == expected[4 * batch : 4 * batch + 4]
        history += [(one, measured(1.0)) for one in proposed]
    assert inner.calls == 1
    more = pooled.propose(space, profile(), history, 4, 8)
    assert inner.calls == 2
    assert len(more) == 4 and not {one.decisions for one in more} & {one.decisions for one, _ in history}


def test_tasks_do_not_mix() -> None:
    inner = Counted()
    pooled = CachingProposer(inner)
    for name in ("a", "b", "a"):
        [one] = pooled.propose(dense_space(name), profile(), (), 1, 0)
        assert one.workload_hash == f"hash-{name}"
    assert inner.calls == 2


def test_who_has_nothing_more_is_not_asked_again() -> None:
    space, inner = dense_space(), Counted(most=3)
    pooled = CachingProposer(inner)
    first = pooled.propose(space, profile(), (), 9, 0)
    assert len(first) == 3
    history = [(one, measured(1.0)) for one in first]
    for batch in range(1, 5):
        assert pooled.propose(space, profile(), history, 9, batch) == []
    assert inner.calls == 2
