"""A proposer that is asked for many programs at once and remembers those that are left."""

from __future__ import annotations

from collections.abc import Sequence

from host.model import Candidate, DeviceProfile, Measurement
from host.schedules.design import DesignSpace
from host.schedules.proposer import Proposer

# Programs to ask for at once: walks and decoding cost the same for one.
_POOL = 32


class CachingProposer:
    """Proposes what another proposer made, in its order, and asks it again only when that is used up.

    The other one has to propose the same whatever is in the history, but for what it leaves out: a model that
    has learned is another proposer.

    Args:
        proposer: the other one.
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
        """Up to `k` candidates that are not in the history, the other's first ones first."""
        task = space.task.workload_hash
        pool = self._pools.setdefault(task, {})
        known = {candidate.decisions for candidate, _ in history}
        fresh = [one for decisions, one in pool.items() if decisions not in known]
        if len(fresh) < k and task not in self._used_up:
            before = len(pool)
            for one in self._proposer.propose(space, profile, history, max(_POOL, k), seed):
                pool.setdefault(one.decisions, one)
            if len(pool) == before:
                self._used_up.add(task)
            fresh = [one for decisions, one in pool.items() if decisions not in known]
        return fresh[:k]
