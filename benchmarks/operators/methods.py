"""The ways to a program, by name. Each returns its finalist, not yet measured against the others."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.operators.bench import Bench, Program, Stopwatch
from benchmarks.operators.subject import Subject
from host.build import default_schedule
from host.errors import ScheduleError
from host.gensor import Gensor
from host.model import Candidate
from host.schedules import DesignSpace, scheduled_function, space_for
from research.baselines.own_space import OwnSpace, decisions_of
from research.metaschedule import SearchOptions, SearchResult, search

LIBRARY = "library"
_TOP = 10


@dataclass(frozen=True, eq=False)
class Proposal:
    """The proposal of a method.

    Attributes:
        program: its finalist.
        watch: time that it took, measuring included.
        details: more for the results.
    """

    program: Program
    watch: Stopwatch
    details: dict[str, Any] = field(default_factory=dict)


class NoProgramError(Exception):
    """A method found no program; the message says why."""


Method = Callable[[Bench, Subject], Proposal]


def _space(bench: Bench, subject: Subject) -> DesignSpace:
    return space_for(subject.task, bench.profile.hardware, bench.profile.threads)


def _program(space: DesignSpace, candidate: Candidate) -> Program:
    function = scheduled_function(space.apply(candidate))
    return Program(function, dict(candidate.decisions), candidate.estimate_s)


def _first(proposer: Gensor) -> Method:
    """The first proposal, unmeasured; a task without a space gets the product's default schedule."""

    def method(bench: Bench, subject: Subject) -> Proposal:
        watch = Stopwatch()
        with watch:
            try:
                space = _space(bench, subject)
                [candidate] = proposer.propose(space, bench.profile, (), 1, bench.options.seed)
                program = _program(space, candidate)
                details = {"rule": space.rule.name}
            except ScheduleError as error:
                function = default_schedule(subject.task.function)
                program = Program(function, {})
                details = {"rule": "default", "reason": str(error)}
        return Proposal(program, watch, details)

    return method


def _gensor10(bench: Bench, subject: Subject) -> Proposal:
    """The best of the first ten proposals by measurement."""
    watch = Stopwatch()
    with watch:
        space = _space(bench, subject)
        proposed = Gensor().propose(space, bench.profile, (), _TOP, bench.options.seed)
        programs = [_program(space, candidate) for candidate in proposed]
        ranked = bench.screen(subject, programs)
    if not ranked:
        raise NoProgramError(f"none of {len(programs)} programs runs")
    best = ranked[0][0].program
    place = next(i for i, program in enumerate(programs) if program is best)
    return Proposal(best, watch, {"rule": space.rule.name, "place": place, "measured": len(ranked)})


def _random(bench: Bench, subject: Subject) -> Proposal:
    """The best of random programs of our space by measurement."""
    watch = Stopwatch()
    with watch:
        space = _space(bench, subject)
        programs = random_programs(space, bench.options.random, bench.options.seed)
        ranked = bench.screen(subject, programs)
    if not ranked:
        raise NoProgramError(f"none of {len(programs)} programs runs")
    median = float(np.median([seconds for _, seconds in ranked]))
    return Proposal(ranked[0][0].program, watch, {"measured": len(ranked), "median_us": median * 1e6})


def random_programs(space: DesignSpace, count: int, seed: int) -> list[Program]:
    """Different random programs of a space; fewer if it holds no more."""
    generator = random.Random(seed)
    drawn = [space.sample(generator) for _ in range(4 * count)]
    distinct = list({tuple(values.items()): values for values in drawn}.values())[:count]
    programs = []
    for values in distinct:
        candidate = space.candidate(values, "random", space.estimate_s(values))
        try:
            programs.append(_program(space, candidate))
        except ScheduleError:
            continue
    return programs


def _metaschedule(bench: Bench, subject: Subject) -> Proposal:
    """The stock search with its stock rules."""
    watch = Stopwatch()
    with watch:
        direct = subject.form(direct=True)
        result = _search(bench, direct, "metaschedule", "post-order-apply", bench.workers)
        return _finalist(bench, subject, result, watch, _stock_decisions, direct=True)


def _metaschedule_own(bench: Bench, subject: Subject) -> Proposal:
    """The stock search on our space."""
    watch = Stopwatch()
    with watch:
        space = _space(bench, subject)
        generator = OwnSpace(space, bench.options.seed)
        # The mutator is Python: threads of the search would wait for each other.
        result = _search(bench, subject, "metaschedule-own", generator, 1)
        return _finalist(bench, subject, result, watch, decisions_of)


def _search(bench: Bench, subject: Subject, method: str, generator: Any, threads: int) -> SearchResult:
    options = SearchOptions(
        trials=bench.options.trials,
        seed=bench.options.seed,
        cost_model=bench.options.cost_model,
        workers=bench.workers,
        search_threads=threads,
        repeat=bench.options.samples,
        min_repeat_ms=bench.options.sample_ms,
    )
    # The hash is in the name since another lowering makes another task.
    name = f"{subject.operator.name}-{subject.task.workload_hash}-{bench.options.threads}"
    records = bench.options.records / method / name
    return search(
        subject.task, bench.target, bench.options.threads, bench.runner, records, options, generator
    )


def _finalist(
    bench: Bench,
    subject: Subject,
    result: SearchResult,
    watch: Stopwatch,
    decisions: Callable[[Any], Any],
    direct: bool = False,
) -> Proposal:
    programs = [Program(found.function, decisions(found.trace), None, direct) for found in result.programs]
    ranked = bench.screen(subject, programs)
    if not ranked:
        raise NoProgramError(f"none of {result.trials} trials gave a program that runs")
    details = {
        "trials": result.trials,
        "failed_trials": result.failed,
        "trials_now": result.measured_now,
        "found_us": result.programs[0].seconds * 1e6,
        "search_s": result.seconds,
    }
    return Proposal(ranked[0][0].program, watch, details)


def _stock_decisions(trace: Any) -> list[Any]:
    """Sampled decisions in the order of the trace, as [instruction, numbers]."""
    found = []
    for instruction in trace.insts:
        if instruction in trace.decisions:
            value = trace.decisions[instruction]
            numbers = [int(part) for part in value] if hasattr(value, "__len__") else int(value)
            found.append([str(instruction.kind.name), numbers])
    return found


METHODS: dict[str, Method] = {
    "gensor": _first(Gensor()),
    "tree": _first(Gensor(tree=True)),
    "gensor10": _gensor10,
    "metaschedule": _metaschedule,
    "metaschedule-own": _metaschedule_own,
    "random": _random,
}
