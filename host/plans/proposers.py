"""Proposers of plans: by the estimate, and at random with the same ranker."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from host.errors import LoweringError, ScheduleError
from host.model import LoweredModel, Site
from host.model.site import TYPE
from host.plans.estimate import PlanEstimate, PlanEstimator
from host.plans.plan import ModelPlan

PASSES, ESTIMATE, CHANCE = "passes", "estimate", "chance"
# Random plans of which the best by the estimate is one proposal of chance.
_RANKED = 8
# Sums of differences within so much of a plan's estimate are exact: the sites do not depend on each other.
_EXACT = 1e-3
# Rounds of moves over all sites where they do depend on each other.
_ROUNDS = 3


@dataclass(frozen=True)
class Proposed:
    """A plan with its estimate.

    Attributes:
        plan: as lowering took it: without decisions at sites that other decisions leave no room for.
        estimate: of the model with it.
        proposer: who made it: the passes, the estimate or chance.
        trace: its decisions in words.
    """

    plan: ModelPlan
    estimate: PlanEstimate
    proposer: str
    trace: str


@dataclass(frozen=True)
class SiteClass:
    """Sites that are alike, which a proposer decides alike.

    Attributes:
        alike: their kind, shapes and types.
        names: of the sites.
        options: the values that can be taken.
        own: what the passes take.
    """

    alike: str
    names: tuple[str, ...]
    options: tuple[int, ...]
    own: int


@dataclass(eq=False)
class Space:
    """The plans of one model on one device.

    Attributes:
        lower: the model with decisions by site.
        own: the model as the passes decide.
        estimator: of the device.
    """

    lower: Callable[[Mapping[str, int]], LoweredModel]
    own: LoweredModel
    estimator: PlanEstimator
    _known: dict[ModelPlan, Proposed] = field(default_factory=dict)

    @property
    def classes(self) -> tuple[SiteClass, ...]:
        """The sites of the model by what they are alike in.

        Numeric types are left out: what they lose has to be measured (`host.compile.numeric_types`).
        """
        found: dict[tuple[str, int], list[Site]] = {}
        for site in (one for one in self.own.sites if one.kind != TYPE):
            found.setdefault((site.alike, site.own), []).append(site)
        return tuple(
            SiteClass(alike, tuple(site.name for site in sites), sites[0].options, own)
            for (alike, own), sites in found.items()
        )

    def passes(self) -> Proposed:
        """The plan of the passes."""
        return self._proposed(self.own, PASSES)

    def of(self, lowered: LoweredModel) -> Proposed:
        """The plan with which a model was lowered, whoever made it."""
        plan = ModelPlan.of(lowered.sites)
        return self._proposed(lowered, PASSES if plan.is_own else ESTIMATE)

    def proposed(self, values: Sequence[int], proposer: str) -> Proposed | None:
        """The plan with one value for each class of sites; None where the model cannot be lowered with it."""
        decisions = {
            name: value
            for one, value in zip(self.classes, values, strict=True)
            if value != one.own
            for name in one.names
        }
        plan = ModelPlan(tuple(sorted(decisions.items())))
        if plan not in self._known:
            try:
                self._known[plan] = self._proposed(self.lower(decisions), proposer)
            except (LoweringError, ScheduleError):
                return None
        return replace(self._known[plan], proposer=proposer)

    def _proposed(self, lowered: LoweredModel, proposer: str) -> Proposed:
        plan = ModelPlan.of(lowered.sites)
        return Proposed(plan, self.estimator.estimate(lowered), proposer, plan.trace(lowered.sites))


def by_estimate(space: Space, count: int) -> list[Proposed]:
    """The plans with the least estimates, best first, without that of the passes.

    The difference that each option of each class makes is estimated alone. Where these differences add up,
    the best sums are the best plans, exactly. Where they do not, the best of them is improved by moves of one
    class at a time.

    Args:
        space: of the model.
        count: of plans, at most.
    """
    classes, base = space.classes, space.passes()
    own = tuple(one.own for one in classes)
    seen = {base.plan: base}

    def tried(values: Sequence[int]) -> Proposed | None:
        found = space.proposed(values, ESTIMATE)
        if found is not None:
            seen.setdefault(found.plan, found)
        return found

    differences: list[list[tuple[float, int]]] = []
    for index, one in enumerate(classes):
        row = [(0.0, one.own)]
        for option in one.options:
            found = None if option == one.own else tried((*own[:index], option, *own[index + 1 :]))
            if found is not None:
                row.append((found.estimate.total_s - base.estimate.total_s, option))
        differences.append(sorted(row))
    sums = list(itertools.islice(_least_sums(differences), count + 1))
    exact = True
    for total, values in sums:
        found = tried(values)
        predicted = base.estimate.total_s + total
        if found is None or abs(found.estimate.total_s - predicted) > _EXACT * predicted:
            exact = False
    if not exact:
        _improve(classes, sums[0][1], tried)
    ranked = sorted(seen.values(), key=lambda one: one.estimate.total_s)
    return [one for one in ranked if not one.plan.is_own][:count]


def at_random(space: Space, count: int, seed: int) -> list[Proposed]:
    """Plans by chance: each is the best by the estimate of a few random ones.

    Args:
        space: of the model.
        count: of plans, at most; there may be fewer different ones.
        seed: of the random numbers.
    """
    generator = random.Random(seed)
    found: dict[ModelPlan, Proposed] = {}
    for _ in range(2 * count):
        drawn = [
            space.proposed([generator.choice(one.options) for one in space.classes], CHANCE)
            for _ in range(_RANKED)
        ]
        known = [one for one in drawn if one is not None and not one.plan.is_own]
        best = min(known, key=lambda one: one.estimate.total_s, default=None)
        if best is not None:
            found.setdefault(best.plan, best)
        if len(found) == count:
            break
    return list(found.values())


def _improve(
    classes: Sequence[SiteClass],
    start: Sequence[int],
    tried: Callable[[Sequence[int]], Proposed | None],
) -> None:
    """Moves of one class at a time from a plan, each to a lesser estimate, until there is none."""
    present = list(start)
    first = tried(present)
    best_s = first.estimate.total_s if first is not None else float("inf")
    for _ in range(_ROUNDS):
        before_s = best_s
        for index, one in enumerate(classes):
            for option in one.options:
                moved = [*present[:index], option, *present[index + 1 :]]
                found = tried(moved)
                if found is not None and found.estimate.total_s < best_s:
                    present, best_s = moved, found.estimate.total_s
        if best_s == before_s:
            return


def _least_sums(rows: Sequence[Sequence[tuple[float, int]]]) -> Iterator[tuple[float, tuple[int, ...]]]:
    """One entry of each row, in the order of their sums: the sum and the second parts.

    Args:
        rows: each in the order of its first parts.
    """
    first = tuple(0 for _ in rows)
    waiting = [(sum(row[0][0] for row in rows), first)]
    known = {first}
    while waiting:
        total, places = heapq.heappop(waiting)
        yield total, tuple(row[place][1] for row, place in zip(rows, places, strict=True))
        for index, row in enumerate(rows):
            place = places[index] + 1
            further = (*places[:index], place, *places[index + 1 :])
            if place < len(row) and further not in known:
                known.add(further)
                heapq.heappush(waiting, (total + row[place][0] - row[place - 1][0], further))
