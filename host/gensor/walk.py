"""Annealed Markov walks over the construction graph, and the pool of the best programs they met.

Gensor (arXiv 2502.11407) analyses construction as a Markov process whose transitions are weighted by the
hardware; the constants of the schedule are ours.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

from host.errors import ScheduleError
from host.gensor.actions import Action, actions, skip_empty_levels
from host.gensor.etir import State, initial_state
from host.schedules.api import Decisions, Level
from host.schedules.design import DesignSpace, Fits

Estimate = Callable[[dict[str, int]], float]


@dataclass(frozen=True)
class WalkOptions:
    """How the graph is walked.

    Attributes:
        walks: number of seeded walks.
        temperature: starting temperature; P(action) ~ benefit^(1 / temperature).
        cooling: factor per step.
        patience: steps at one level at which the advance becomes as likely as not.
        limit: hard bound on the steps of one walk.
        stall: walks without a better program after which no further one is started.
        wide: further walks that start with the largest values of decisions that start wide.
        descents: best programs from which the walk goes on at temperature zero, over all levels at once.
        draws: random programs, from the best of which as many descents start again: walks decide level by
            level, and a tile that is worth it with its blocks alone is none that they stop at.
        inverse: whether walks may step back (False: the tree).
        interleave: whether several tiles may be interleaved in one body (virtual threads, accumulators).
        greedy: whether the best action is always taken (the Roller manner).
        exchange: whether the best program of a rule whose decisions are coupled is improved by two of them at
            once in the end.
    """

    walks: int = 32
    temperature: float = 1.0
    cooling: float = 0.85
    patience: int = 12
    limit: int = 160
    stall: int = 14
    wide: int = 8
    descents: int = 6
    draws: int = 256
    inverse: bool = True
    interleave: bool = True
    greedy: bool = False
    exchange: bool = True


@dataclass(frozen=True)
class Step:
    """One state of a walk and what could be done there, for people to look at.

    Attributes:
        walk: number of the walk; -1 for the descents from where walks ended.
        state: where it stands.
        cost_s: estimated seconds of one call of the program.
        benefits: kind, decision, value and benefit T(s) / T(s') of every edge out of the state.
        taken: kind and decision of the edge that was taken; ("stop", "") where the walk ends.
    """

    walk: int
    state: State
    cost_s: float
    benefits: tuple[tuple[str, str, int, float], ...]
    taken: tuple[str, str]


Recorder = Callable[[Step], None]

TREE = WalkOptions(
    walks=1, wide=0, descents=0, draws=0, inverse=False, interleave=False, greedy=True, exchange=False
)


@dataclass
class Pool:
    """The `size` programs of the least estimated time that the walks have found, each once."""

    size: int
    entries: dict[tuple[tuple[str, int], ...], float] = field(default_factory=dict)
    # Of a full pool, the estimate and the decisions of its last program.
    _last: tuple[float, tuple[tuple[str, int], ...]] | None = None

    def offer(self, state: State, cost_s: float) -> bool:
        """Takes a program in if it is among the best; whether it is the best of all."""
        key = state.key()
        if self._last is not None and (cost_s, key) >= self._last:
            return False
        best = min(self.entries.values(), default=math.inf)
        self.entries.setdefault(key, cost_s)
        if len(self.entries) > self.size:
            del self.entries[self._worst()]
        if len(self.entries) == self.size:
            worst = self._worst()
            self._last = (self.entries[worst], worst)
        return cost_s < best

    def _worst(self) -> tuple[tuple[str, int], ...]:
        return max(self.entries, key=lambda key: (self.entries[key], key))

    def ranked(self) -> list[tuple[dict[str, int], float]]:
        """Programs with their estimates, best first."""
        ordered = sorted(self.entries.items(), key=lambda item: (item[1], item[0]))
        return [(dict(key), cost) for key, cost in ordered]


# Register tiles from whose best program two decisions at once are changed.
_EXCHANGED = 2


@dataclass(frozen=True)
class _Edges:
    """What leads out of a state: moves with their benefits T(s) / T(s'), and the advance."""

    moves: tuple[Action, ...]
    gains: tuple[float, ...]
    advance: Action


class _Graph:
    """The construction graph of one space; walks meet again, so what leads out of a state is kept."""

    def __init__(
        self, space: DesignSpace, cost: Callable[[State], float], fits: Fits, options: WalkOptions
    ) -> None:
        self.space = space
        self.cost = cost
        self.fits = fits
        self.options = options
        self._known: dict[tuple[tuple[tuple[str, int], ...], int], _Edges] = {}

    def edges(self, state: State) -> _Edges:
        """The legal edges out of a state that is not finished."""
        key = (state.values, state.level)
        found = self._known.get(key)
        if found is None:
            options = self.options
            *moves, advance = actions(self.space, state, options.inverse, options.interleave, self.fits)
            here = self.cost(state)
            gains = tuple(here / self.cost(action.target) for action in moves)
            found = self._known[key] = _Edges(tuple(moves), gains, advance)
        return found


def construct(
    space: DesignSpace,
    estimate: Estimate,
    options: WalkOptions,
    k: int,
    seed: int,
    recorder: Recorder | None = None,
) -> list[tuple[dict[str, int], float]]:
    """The `k` best programs that the walks met, with estimated seconds, best first.

    Args:
        space: the design space of the task.
        estimate: seconds of one call for given decisions.
        options: how to walk.
        k: number of programs.
        seed: the same seed gives the same programs.
        recorder: receives every step; it changes nothing.
    """
    known: dict[tuple[tuple[str, int], ...], float] = {}

    def cost(state: State) -> float:
        key = state.values
        found = known.get(key)
        if found is None:
            found = known[key] = estimate(state.decisions)
        return found

    legal: dict[tuple[int, ...], bool] = {}

    def fits(values: Decisions) -> bool:
        key = tuple(values.values())
        found = legal.get(key)
        if found is None:
            found = legal[key] = space.fits(values)
        return found

    graph = _Graph(space, cost, fits, options)
    pool = Pool(max(k, 8))
    stalled = 0
    for number in range(options.walks):
        better = _walk(graph, random.Random(f"{seed}/{number}"), pool, number, recorder)
        stalled = 0 if better else stalled + 1
        if stalled >= options.stall:
            break
    for number in range(options.walks, options.walks + options.wide):
        _walk(graph, random.Random(f"{seed}/{number}"), pool, number, recorder)
    descents = _Descents(graph, pool, recorder)
    for values, _ in pool.ranked()[: options.descents]:
        descents.follow(values, -1)
    number = options.walks + options.wide
    # Which draws are the best depends on who estimates.
    kept = space.kept if estimate == space.estimate_s else {}
    for values in _best_draws(space, cost, options, seed, kept):
        descents.follow(values, number)
        number += 1
    for values in _starts(space) if options.descents else ():
        descents.follow(values, number)
        number += 1
    if options.exchange and space.rule.coupled:
        ranked = [values for values, _ in pool.ranked()]
        for values in _one_of_each_tile(space, ranked)[:_EXCHANGED]:
            descents.follow(values, number, exchange=True)
            number += 1
    return pool.ranked()[:k]


def _starts(space: DesignSpace) -> Iterator[dict[str, int]]:
    """The rule's own starts, for all threads, as far as a space of fewer choices has them."""
    for start in space.rule.starts(space.workload, space.hardware):
        values = {one.name: start.get(one.name, one.choices[-1]) for one in space.decisions}
        if space.legal(values):
            yield values


def _best_draws(
    space: DesignSpace,
    cost: Callable[[State], float],
    options: WalkOptions,
    seed: int,
    kept: dict[Hashable, Any],
) -> list[dict[str, int]]:
    """The best of random programs, one of each register tile, fewer where the space has no more.

    To draw legal programs takes a third of some constructions, and a report repeats those of the kernels
    with the most time: what was found is `kept`.
    """
    key = ("gensor.draws", seed, options.draws, options.descents)
    if key in kept:
        found: list[dict[str, int]] = kept[key]
        return found
    generator = random.Random(f"{seed}/draws")
    drawn: dict[tuple[tuple[str, int], ...], State] = {}
    for _ in range(options.draws):
        try:
            state = _finished(space.sample(generator))
        except ScheduleError:
            break  # hardly any values fit together: the walks have met what there is
        drawn.setdefault(state.key(), state)
    ordered = sorted(drawn.values(), key=lambda state: (cost(state), state.key()))
    found = kept[key] = _one_of_each_tile(space, [one.decisions for one in ordered])[: options.descents]
    return found


def _one_of_each_tile(space: DesignSpace, programs: list[dict[str, int]]) -> list[dict[str, int]]:
    """The first program of each register tile."""
    tiles: dict[tuple[int, ...], dict[str, int]] = {}
    for values in programs:
        tile = (values[d.name] for d in space.decisions if d.kind.level is Level.REGISTER)
        tiles.setdefault(tuple(tile), values)
    return list(tiles.values())


class _Descents:
    """Descents into one pool. One that comes to where another went goes on as that did, and ends there.

    Args:
        graph: of the space.
        pool: receives every state that is met.
        recorder: receives every step of every descent, which is then gone to its end.
    """

    def __init__(self, graph: _Graph, pool: Pool, recorder: Recorder | None) -> None:
        self._graph, self._pool, self._recorder = graph, pool, recorder
        self._passed: set[tuple[State, bool]] = set()

    def follow(self, values: dict[str, int], number: int, exchange: bool = False) -> None:
        """Follows the best edge of any level, as long as one gains.

        With `exchange`, edges change two decisions as well. The recorder sees the best of those only.
        """
        space, cost, recorder = self._graph.space, self._graph.cost, self._recorder
        state = _finished(values)
        while recorder is not None or (state, exchange) not in self._passed:
            self._passed.add((state, exchange))
            near = [_finished(other) for other in space.neighbours(state.decisions, self._graph.fits)]
            far = [_finished(other) for other in space.exchanges(state.decisions)] if exchange else []
            best, best_key = state, (cost(state), state.key())
            for other in (*near, *far):
                cost_s = cost(other)
                self._pool.offer(other, cost_s)
                # The order of the pool, so that a descent comes to the best program, and not next to it.
                if cost_s <= best_key[0] and (key := (cost_s, other.key())) < best_key:
                    best, best_key = other, key
            last = best is state
            if recorder is not None:
                shown = near if last or best in near else [*near, best]
                recorder(_descent_step(number, state, shown, None if last else best, cost))
            if last:
                return
            state = best


def _descent_step(
    number: int, state: State, around: list[State], best: State | None, cost: Callable[[State], float]
) -> Step:
    def moved(other: State) -> tuple[str, int]:
        return next(new for old, new in zip(state.values, other.values, strict=True) if old != new)

    benefits = tuple(("descend", *moved(other), cost(state) / cost(other)) for other in around)
    taken = ("stop", "") if best is None else ("descend", moved(best)[0])
    return Step(number, state, cost(state), benefits, taken)


def _finished(values: dict[str, int]) -> State:
    return State(tuple(values.items()), len(Level))


def _walk(
    graph: _Graph, generator: random.Random, pool: Pool, number: int, recorder: Recorder | None
) -> bool:
    space, options = graph.space, graph.options
    state = skip_empty_levels(space, _start(space, number >= options.walks))
    temperature, at_level, better = options.temperature, 0, False
    for _ in range(options.limit):
        better |= pool.offer(state, graph.cost(state))
        if state.finished:
            break
        action = _choose(graph, state, temperature, at_level, generator)
        if recorder is not None:
            recorder(_walk_step(graph, state, action, number))
        advanced = action.kind == "advance"
        state = skip_empty_levels(space, action.target)
        at_level = 0 if advanced else at_level + 1
        temperature = options.temperature if advanced else max(0.02, temperature * options.cooling)
    return better


def _start(space: DesignSpace, wide: bool) -> State:
    """The unit program, or the same with the largest values of the decisions that ask for such a start."""
    state = initial_state(space)
    for decision in space.decisions:
        if wide and decision.kind.starts_wide:
            other = state.with_value(decision.name, decision.choices[-1])
            state = other if space.legal(other.decisions) else state
    return state


def _walk_step(graph: _Graph, state: State, taken: Action, number: int) -> Step:
    here, edges = graph.cost(state), graph.edges(state)
    gains = (*edges.gains, here / graph.cost(edges.advance.target))
    benefits = tuple(
        (edge.kind, edge.decision, edge.target.decisions.get(edge.decision, 0), gain)
        for edge, gain in zip((*edges.moves, edges.advance), gains, strict=True)
    )
    return Step(number, state, here, benefits, (taken.kind, taken.decision))


def _choose(
    graph: _Graph, state: State, temperature: float, at_level: int, generator: random.Random
) -> Action:
    """One transition: benefit of an action is T(s) / T(s'), the advance follows a sigmoid of the steps."""
    edges = graph.edges(state)
    moves, gains, advance = edges.moves, edges.gains, edges.advance
    if graph.options.greedy:
        best = max(range(len(moves)), key=lambda i: gains[i], default=None)
        return advance if best is None or gains[best] <= 1.0 else moves[best]
    leave = 1.0 / (1.0 + math.exp(-(at_level - graph.options.patience) / 2.0))
    if not moves or generator.random() < leave:
        return advance
    largest = max(gains)
    weights = [(gain / largest) ** (1.0 / temperature) for gain in gains]
    return generator.choices(moves, weights)[0]
