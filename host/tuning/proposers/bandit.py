"""Several proposers as one: a proposer that wins more on the board gets more slots."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from host.errors import EdgeError
from host.model import Candidate, DeviceProfile, Measurement
from host.schedules.design import DesignSpace
from host.schedules.proposer import Proposer
from host.tuning.proposers.trials import Trial, judge_trials

Decisions = tuple[tuple[str, int | tuple[int, ...]], ...]

# How often a proposer is asked, with more candidates and then another seed, until it has new ones.
_ATTEMPTS = 4
# A proposer with fewer judged trials on the board gets one slot of every request before any is drawn.
_UNKNOWN = 2

# What an earlier trial counts for beside the next one of the board. Discounted Thompson sampling: Raj and
# Kalyani, "Taming non-stationary bandits", arXiv 1707.09727: what learns does not stay what it was.
_DISCOUNT = 0.99
# Trials that a proposer's prior counts for; its mean is the win rate of all proposers of the board together,
# so that one which was not asked for long is not taken for better than those that won.
_PRIOR_TRIALS = 2.0


@dataclass(frozen=True)
class BetaPosterior:
    """A proposer's chance of winning as a beta distribution.

    Attributes:
        wins, losses: discounted, including the prior.
        trials: number of its judged trials.
    """

    wins: float
    losses: float
    trials: int

    @property
    def rate(self) -> float:
        """The mean of the distribution: the expected chance of a win."""
        return self.wins / (self.wins + self.losses)

    def draw(self, generator: random.Random) -> float:
        """A chance drawn from the distribution."""
        return generator.betavariate(self.wins, self.losses)


def win_posteriors(trials: Sequence[Trial], names: Iterable[str]) -> dict[str, BetaPosterior]:
    """Each proposer's chance of winning, by all trials of a board; later trials have a larger weight."""
    wins = dict.fromkeys(names, 0.0)
    losses = dict.fromkeys(wins, 0.0)
    counts = Counter[str]()
    weight = 1.0
    for judged in reversed(judge_trials(trials)):
        name = judged.trial.candidate.proposer
        if name in wins:
            (wins if judged.won else losses)[name] += weight
            counts[name] += 1
        weight *= _DISCOUNT
    # One win and one loss in advance: no rate is 0 or 1.
    pooled = (1.0 + sum(wins.values())) / (2.0 + sum(wins.values()) + sum(losses.values()))
    return {
        name: BetaPosterior(
            wins[name] + _PRIOR_TRIALS * pooled, losses[name] + _PRIOR_TRIALS * (1.0 - pooled), counts[name]
        )
        for name in wins
    }


def expected_shares(
    posteriors: Mapping[str, BetaPosterior], seed: int = 0, draws: int = 400
) -> dict[str, float]:
    """The expected share of the proposals of each proposer, estimated by drawing many times."""
    generator = random.Random(f"shares/{seed}")
    counts = dict.fromkeys(posteriors, 0)
    for _ in range(draws):
        counts[sample_proposer(posteriors, generator)] += 1
    return {name: count / draws for name, count in counts.items()}


def sample_proposer(posteriors: Mapping[str, BetaPosterior], generator: random.Random) -> str:
    """The proposer of one slot: the one with the largest drawn chance of winning."""
    chances = {name: one.draw(generator) for name, one in posteriors.items()}
    return max(chances, key=lambda name: chances[name])


class BanditProposer:
    """Mixes the proposals of several proposers; itself a `Proposer`. It proposes no measured program.

    Discounted Thompson sampling over the trials of the board, as `judge_trials` judges them, gives every slot
    to a proposer. There is no other state, so the same trials give the same proposals. A candidate keeps
    the name of its proposer.

    Args:
        proposers: at least one, each of another name.
        seed: of the slots.
        trials: everything measured on the board, oldest first.
        note: receives a line when a proposer fails; the others fill its slots.
    """

    name = "bandit"

    def __init__(
        self,
        proposers: Sequence[Proposer],
        seed: int,
        trials: Sequence[Trial] = (),
        note: Callable[[str], None] | None = None,
    ) -> None:
        self._proposers = {proposer.name: proposer for proposer in proposers}
        if not proposers or len(self._proposers) != len(proposers):
            raise ValueError("a bandit needs proposers of different names")
        self._seed = seed
        self._posteriors = win_posteriors(trials, self._proposers)
        self._trials = len(trials)
        self._note = note or (lambda text: None)

    def expected_shares(self) -> dict[str, float]:
        """The expected share of the proposals of each proposer."""
        return expected_shares(self._posteriors, self._seed)

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
        ranked = sorted(self._posteriors, key=lambda name: -self._posteriors[name].rate)
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
        """The proposer of each slot; proposers without trials come first."""
        unknown = [name for name, posteriors in self._posteriors.items() if posteriors.trials < _UNKNOWN]
        # Alone in the first slot of every task, one of two unknown ones would never be compared.
        generator.shuffle(unknown)
        first = unknown[:k]
        return first + [sample_proposer(self._posteriors, generator) for _ in range(k - len(first))]

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
        """Up to `k` new candidates of one proposer, in its order."""
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
