"""Several proposers as one: who has been winning on the board proposes more."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence

from host.errors import EdgeError
from host.model import Candidate, DeviceProfile, Measurement
from host.schedules.design import DesignSpace
from host.schedules.proposer import Proposer
from host.tuning.trials import Trial, drawn, odds_of, shares_of

Decisions = tuple[tuple[str, int | tuple[int, ...]], ...]

# How often a proposer is asked, with more candidates and then another seed, until it has new ones.
_ATTEMPTS = 4
# A proposer with fewer judged trials on the board gets one slot of every request before any is drawn.
_UNKNOWN = 2


class Portfolio:
    """Mixes proposals, each once, none that was measured before; itself a `Proposer`.

    Every slot goes to one proposer by discounted Thompson sampling over what the trials of the board say
    (`host.tuning.trials`); nothing else is remembered, so that the same trials give the same proposals.
    A candidate keeps its proposer's name.

    Args:
        proposers: at least one, each of another name.
        seed: of the slots.
        trials: everything measured on the board, oldest first.
        note: told what a proposer failed with; the others fill its slots.
    """

    name = "portfolio"

    def __init__(
        self,
        proposers: Sequence[Proposer],
        seed: int,
        trials: Sequence[Trial] = (),
        note: Callable[[str], None] | None = None,
    ) -> None:
        self._proposers = {proposer.name: proposer for proposer in proposers}
        if not proposers or len(self._proposers) != len(proposers):
            raise ValueError("a portfolio needs proposers of different names")
        self._seed = seed
        self._odds = odds_of(trials, self._proposers)
        self._trials = len(trials)
        self._note = note or (lambda text: None)

    def shares(self) -> dict[str, float]:
        """The share of the proposals that each proposer may expect now."""
        return shares_of(self._odds, self._seed)

    def propose(
        self,
        space: DesignSpace,
        profile: DeviceProfile,
        history: Sequence[tuple[Candidate, Measurement]],
        k: int,
        seed: int,
        taken: Collection[Candidate] = (),
    ) -> list[Candidate]:
        """Up to `k` new candidates; fewer where no proposer has another program.

        Args:
            space: of the task.
            profile: of the device.
            history: measured programs of the task.
            k: how many.
            seed: of the proposers.
            taken: programs of the task that failed or are on their way to the device.
        """
        known = {candidate.decisions for candidate, _ in history}
        known |= {one.decisions for one in taken}
        task = space.task.workload_hash
        generator = random.Random(f"{self._seed}/{seed}/{task}/{self._trials}/{len(known)}")
        lists: dict[str, list[Candidate]] = {}
        chosen: list[Candidate] = []
        ranked = sorted(self._odds, key=lambda name: -self._odds[name].rate)
        for slot in self._slots(k, generator):
            for name in [slot, *ranked]:
                if name not in lists:
                    lists[name] = self._fresh(name, space, profile, history, known, k, seed)
                candidate = next((one for one in lists[name] if one.decisions not in known), None)
                if candidate is not None:
                    known.add(candidate.decisions)
                    chosen.append(candidate)
                    break
        return chosen

    def _slots(self, k: int, generator: random.Random) -> list[str]:
        """The proposer of each slot; those that nothing is known of come first."""
        unknown = [name for name, odds in self._odds.items() if odds.trials < _UNKNOWN]
        # Alone in the first slot of every task, one of two unknown ones would never be compared.
        generator.shuffle(unknown)
        first = unknown[:k]
        return first + [drawn(self._odds, generator) for _ in range(k - len(first))]

    def _fresh(
        self,
        name: str,
        space: DesignSpace,
        profile: DeviceProfile,
        history: Sequence[tuple[Candidate, Measurement]],
        known: Collection[Decisions],
        k: int,
        seed: int,
    ) -> list[Candidate]:
        """Up to `k` candidates of one proposer that are not known, in its order."""
        found: dict[Decisions, Candidate] = {}
        wanted = k
        for attempt in range(_ATTEMPTS):
            try:
                proposed = self._proposers[name].propose(
                    space, profile, history, wanted, seed + max(0, attempt - 1)
                )
            except (EdgeError, RuntimeError, ValueError) as error:
                self._note(f"{name} proposes nothing: {' '.join(str(error).split())}")
                break
            for candidate in proposed:
                if candidate.decisions not in known:
                    found.setdefault(candidate.decisions, candidate)
            if len(found) >= k:
                break
            # Not every proposer leaves out what it proposed before: ask for so many more.
            wanted = k + len(known)
        return list(found.values())[:k]
