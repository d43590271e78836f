"""A design space: the decisions that are open for one task, and how they become a program."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import tvm
from tvm import s_tir, tirx

from host.errors import ScheduleError
from host.model import Candidate, Task
from host.schedules.api import PARALLEL, Decision, Decisions, Rule, Sampler
from host.schedules.constants import as_learned
from host.schedules.workload import Workload
from targets import HardwareModel

# Whether values that are all among the choices of a space are legal.
Fits = Callable[[Decisions], bool]
# Name of the whole among the parts of an estimate.
TOTAL = "total"


@dataclass(frozen=True, eq=False)
class DesignSpace:
    """The programs that one rule can make for one task on one processor."""

    task: Task
    workload: Workload
    hardware: HardwareModel
    threads: int
    rule: Rule
    decisions: tuple[Decision, ...] = field(default=())

    @cached_property
    def open_levels(self) -> frozenset[int]:
        """The levels (`Level`) that have a decision with a choice."""
        return frozenset(int(d.kind.level) for d in self.decisions if len(d.choices) > 1)

    @cached_property
    def _drawn(self) -> list[tuple[str, tuple[int, ...], int, int]]:
        """What drawing needs of each decision: name, choices, their number, and the bits of that."""
        return [(d.name, d.choices, len(d.choices), len(d.choices).bit_length()) for d in self.decisions]

    @cached_property
    def kept(self) -> dict[Hashable, Any]:
        """What a proposer has found in the space and needs again, by a name and what else it depends on."""
        return {}

    @cached_property
    def parts(self) -> tuple[DesignSpace, ...]:
        """The spaces of parts that are decided apart from each other, for one thread; see `Rule.parts`.

        Their decisions are the first ones of this space, under the names that the part's rule has.
        """
        found = []
        for prefix, rule, workload in self.rule.parts(self.workload):
            kinds = {kind.name: kind for kind in rule.decisions}
            own = tuple(
                Decision(kinds[one.name.removeprefix(prefix)], one.choices)
                for one in self.decisions
                if one.name.startswith(prefix)
            )
            found.append(DesignSpace(self.task, workload, self.hardware, 1, rule, own))
        return tuple(found)

    def traces(self, candidate: Candidate) -> bool:
        """Whether the trace of a candidate's schedule gives its program again, see `Rule.traces`."""
        return self.rule.traces(_values_of(candidate))

    def legal(self, values: Decisions) -> bool:
        """Whether the values are among the choices and fit together."""
        for decision in self.decisions:
            if values.get(decision.name) not in decision.choices:
                return False
        return self.fits(values)

    def holds(self, candidate: Candidate) -> bool:
        """Whether the space makes the candidate's program; a recorded one may be of other choices."""
        if candidate.workload_hash != self.task.workload_hash or candidate.rule != self.rule.name:
            return False
        return candidate.space_version == self.rule.version and self.legal(_values_of(candidate))

    def decided(self, values: Decisions) -> DesignSpace:
        """The space that holds one program: what `values` names decided, every other decision left out."""
        kept = (decision for decision in self.decisions if decision.name in values)
        return replace(self, decisions=tuple(replace(d, choices=(values[d.name],)) for d in kept))

    def fixed(self, values: Decisions) -> DesignSpace | None:
        """The space with what `values` names decided, the rest open; None where a value is no choice."""
        decisions = []
        for decision in self.decisions:
            if decision.name in values:
                if values[decision.name] not in decision.choices:
                    return None
                decision = replace(decision, choices=(values[decision.name],))
            decisions.append(decision)
        return replace(self, decisions=tuple(decisions))

    def threads_of(self, values: Decisions) -> int:
        """Threads that the program with these values uses."""
        return values.get(PARALLEL.name, self.threads)

    def estimate_s(self, values: Decisions) -> float:
        """Estimated seconds of one call of the program with these values."""
        hardware = as_learned(self.hardware)
        return self.rule.estimate_s(self.workload, hardware, self.threads_of(values), values)

    def estimate_parts_s(self, values: Decisions) -> Mapping[str, float]:
        """The parts of the estimate, see `Rule.estimate_parts_s`; empty where the rule separates none."""
        return self.rule.estimate_parts_s(self.workload, as_learned(self.hardware), values)

    def estimated(self, values: Decisions) -> dict[str, float]:
        """The parts of the estimate with their "total", in seconds of one call.

        Where parts of the space are decided apart, those of each of them too, in seconds of one band, under
        names that begin as its decisions do.
        """
        found = {**self.estimate_parts_s(values), TOTAL: self.estimate_s(values)}
        for prefix, part in zip(self.rule.part_rules, self.parts, strict=False):
            own = {one.name: values[prefix + one.name] for one in part.decisions}
            found |= {prefix + name: seconds for name, seconds in part.estimated(own).items()}
        return found

    def candidate(self, values: Decisions, proposer: str, estimate_s: float = math.nan) -> Candidate:
        """The candidate with these values."""
        ordered = tuple((d.name, values[d.name]) for d in self.decisions)
        rule = self.rule
        return Candidate(self.task.workload_hash, rule.name, ordered, proposer, estimate_s, rule.version)

    def apply(self, candidate: Candidate) -> s_tir.Schedule:
        """The program of a candidate.

        Raises:
            ScheduleError: the candidate is of another task, rule or space version, or is not legal here.
        """
        if candidate.workload_hash != self.task.workload_hash or candidate.rule != self.rule.name:
            raise ScheduleError(f"candidate made for another task or rule than {self.task.name}")
        if candidate.space_version != self.rule.version:
            raise ScheduleError(
                f"candidate of version {candidate.space_version} of rule {self.rule.name} for "
                f"{self.task.name}: this is version {self.rule.version}; tune the task again"
            )
        values = _values_of(candidate)
        if not self.legal(values):
            raise ScheduleError(f"decisions {values} are not legal for {self.task.name}")
        schedule = s_tir.Schedule(
            tvm.IRModule({"main": self.task.function}), debug_mask="none", error_render_level="none"
        )
        sampler = Sampler(schedule, self.decisions, values)
        try:
            self.rule.apply(sampler, self.workload, self.hardware, self.threads_of(values))
        except (RuntimeError, ValueError, TypeError) as error:
            first = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
            raise ScheduleError(
                f"rule {self.rule.name} does not apply to {self.task.name}: {first}"
            ) from error
        return schedule

    def sample(self, generator: random.Random, attempts: int = 4000) -> dict[str, int]:
        """Uniformly random legal values.

        Raises:
            ScheduleError: none was found in `attempts` draws.
        """
        if self.parts:
            # All parts of a chain are seldom legal at once.
            found = [value for part in self.parts for value in part.sample(generator, attempts).values()]
            found += [generator.choice(one.choices) for one in self.decisions[len(found) :]]
            return {one.name: value for one, value in zip(self.decisions, found, strict=True)}
        # As `generator.choice` draws, whose calls would take most of the time of a construction.
        bits = generator.getrandbits
        drawn = self._drawn
        values: dict[str, int] = {}
        for _ in range(attempts):
            for name, choices, count, width in drawn:
                index = bits(width)
                while index >= count:
                    index = bits(width)
                values[name] = choices[index]
            if self.fits(values):
                return values
        raise ScheduleError(f"no legal program of rule {self.rule.name} found for {self.task.name}")

    def fits(self, values: Decisions) -> bool:
        """Whether values that are all among the choices are legal."""
        return self.rule.legal(self.workload, self.hardware, values)

    def steps(self, values: Decisions, decision: Decision, fits: Fits | None = None) -> Iterator[int]:
        """The nearest legal values of one decision below and above its present one, the others unchanged.

        Values in between may be illegal: a block has to divide the tiles, and its choices are those of every
        tile. Whatever step leads from s to t, another leads from t to s.

        Args:
            values: each among the choices of its decision.
            decision: that changes.
            fits: finds out what `fits` of the space does, where a caller keeps the answers.
        """
        fits = fits or self.fits
        name, choices = decision.name, decision.choices
        position = choices.index(values[name])
        changed = dict(values)
        for others in (choices[:position][::-1], choices[position + 1 :]):
            for value in others:
                changed[name] = value
                if fits(changed):
                    yield value
                    break

    def neighbours(self, values: Decisions, fits: Fits | None = None) -> Iterator[dict[str, int]]:
        """Legal values that differ in one decision, whatever its new value; `fits`: see `steps`."""
        fits = fits or self.fits
        for decision in self.decisions:
            name, present = decision.name, values[decision.name]
            changed = dict(values)
            for value in decision.choices:
                changed[name] = value
                if value != present and fits(changed):
                    yield dict(changed)

    def exchanges(self, values: Decisions) -> Iterator[dict[str, int]]:
        """Legal values that differ in two decisions, whatever their new values."""
        for one, other in itertools.combinations(self.decisions, 2):
            present = values[one.name], values[other.name]
            changed = dict(values)
            for first, second in itertools.product(one.choices, other.choices):
                if first == present[0] or second == present[1]:
                    continue
                changed[one.name], changed[other.name] = first, second
                if self.fits(changed):
                    yield dict(changed)


def scheduled_function(schedule: s_tir.Schedule) -> tirx.PrimFunc:
    """The scheduled function of a candidate's schedule."""
    return schedule.mod["main"]


def _values_of(candidate: Candidate) -> dict[str, int]:
    return {name: int(value) for name, value in candidate.decisions if not isinstance(value, tuple)}
