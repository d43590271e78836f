"""A proposer that requests many programs at once from another proposer and caches those that are left."""

from __future__ import annotations

from collections.abc import Sequence

from host.model import Candidate, DeviceProfile, Measurement
from host.schedules.design import DesignSpace
from host.schedules.proposer import Proposer

# Programs to ask for at once: walks and decoding cost the same for one.
_POOL = 32


class CachingProposer:
    """Proposes the cached programs of another proposer in its order, and requests more when they are used up.

    The other proposer's programs must not depend on the history, except that measured ones are left out. What
    it made by an estimate that has learned since is kept too. A model that was trained further is a different
    proposer.

    Args:
        proposer: whose programs are cached.
    """

    def __init__(self, proposer: Proposer) -> None:
        self.name = proposer.name
        self._proposer = proposer
        self._pools: dict[str, dict[object, Candidate]] = {}
        self._used_up: set[str] = set()

    def propose(
        self,
        space: DesignSpace,
        profile: DeviceProfile,
        history: Sequence[tuple[Candidate, Measurement]],
        k: int,
        seed: int,
    ) -> list[Candidate]:
        """Up to `k` candidates that are not in the history, in the other proposer's order."""
        task = space.task.workload_hash
        pool = self._pools.setdefault(task, {})
        known = {candidate.decisions for candidate, _ in history}
        fresh = [one for decisions, one in pool.items() if decisions not in known]
        if len(fresh) < k and task not in self._used_up:
            before = len(pool)
            # The best programs are nearly the same for every seed: more of them, to have some that are new.
            for one in self._proposer.propose(space, profile, history, before + max(_POOL, k), seed):
                pool.setdefault(one.decisions, one)
            if len(pool) == before:
                self._used_up.add(task)
            fresh = [one for decisions, one in pool.items() if decisions not in known]
        return fresh[:k]
