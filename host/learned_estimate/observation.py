"""Measured programs as the learned estimate takes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from device_agent.contract.limits import LIMITS
from host.model import Candidate
from host.records import Record
from host.records.choice import watts_of
from host.records.record import of_one_kind
from host.schedules.api import PARALLEL, Decisions
from host.schedules.design import TOTAL, DesignSpace


@dataclass(frozen=True, eq=False)
class EstimatedProgram:
    """A program with the parts of its estimate.

    Attributes:
        task: workload hash.
        values: of its decisions.
        estimated_s: the parts of the estimate with their "total", see `DesignSpace.estimated`.
    """

    task: str
    values: Decisions
    estimated_s: Mapping[str, float]

    @classmethod
    def of(cls, space: DesignSpace, values: Decisions) -> EstimatedProgram:
        """The program of a design space with these decisions, and the parts of its estimate."""
        return cls(space.task.workload_hash, values, space.estimated(values))

    @property
    def estimate_s(self) -> float:
        """Estimated seconds of one call."""
        return self.estimated_s[TOTAL]

    @property
    def threads(self) -> int:
        """Threads that the program uses; one where that is no decision of its space."""
        return max(1, self.values.get(PARALLEL.name, 1))

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for equal programs of a task, in whatever order their decisions are given."""
        return (self.task, *sorted(self.values.items()))


@dataclass(frozen=True, eq=False)
class Observation:
    """A measured program.

    Attributes:
        rule: of the program.
        program: with its estimate.
        seconds: of one call as measured.
        model: that it was measured for; "" if unknown.
        board: where it was measured, "" for the board that the programs to estimate are for.
        made_at: UTC time in ISO format; "" if unknown.
        watts: mean power while it was called in a loop; None where no energy was measured.
    """

    rule: str
    program: EstimatedProgram
    seconds: float
    model: str = ""
    board: str = ""
    made_at: str = ""
    watts: float | None = None

    @classmethod
    def of(
        cls,
        space: DesignSpace,
        values: Decisions,
        seconds: float,
        model: str = "",
        watts: float | None = None,
    ) -> Observation:
        """The measured program of a design space with these decisions; `seconds` of one call."""
        return cls(space.rule.name, EstimatedProgram.of(space, values), seconds, model, watts=watts)


def observations_of(records: Iterable[Record]) -> list[Observation]:
    """The records whose times can be compared and that contain the parts of the estimate.

    An estimate that no program takes is from elsewhere, and teaches nothing.
    """
    compared = of_one_kind(records)
    return [
        Observation(
            one.candidate.rule,
            EstimatedProgram(one.candidate.workload_hash, values_of(one.candidate), parts_s),
            one.median_s,
            one.origin.model or "",
            made_at=one.made_at,
            watts=watts,
        )
        for one, watts in zip(compared, watts_of(compared), strict=True)
        if one.median_s is not None
        and (parts_s := one.origin.estimate_parts_s) is not None
        and LIMITS.records.shortest_s <= parts_s.get(TOTAL, 0.0) <= LIMITS.records.longest_s
    ]


def values_of(candidate: Candidate) -> dict[str, int]:
    """The value of each decision of a program."""
    return {name: value for name, value in candidate.decisions if isinstance(value, int)}
