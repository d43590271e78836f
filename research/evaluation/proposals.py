"""The result of a proposer with a number of measurements: the program, and the seconds spent."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from host.build import default_schedule
from host.errors import BuildError, MeasureError, ScheduleError, SessionLost, TlmError
from host.model import Candidate, Measurement, Task
from host.schedules import DesignSpace, scheduled_function, space_for
from host.schedules.proposer import Proposer
from research.evaluation.bench import Bench, Built


@dataclass(frozen=True, eq=False)
class Proposed:
    """Programs of a proposer.

    Attributes:
        candidates: best first.
        seconds: of proposing.
        reason: why there are no candidates; "" if there are some.
    """

    candidates: tuple[Candidate, ...]
    seconds: float
    reason: str = ""


@dataclass(frozen=True, eq=False)
class Trial:
    """One program, built and perhaps measured.

    Attributes:
        built: None if the decisions did not apply or the program did not compile.
        applied: whether the decisions gave a program.
        made_s: seconds of applying and building.
        measurement: None if the program was not measured or does not run.
        measured_s: seconds of measuring.
        reason: why the program cannot be used; "" if it can.
    """

    built: Built | None
    applied: bool
    made_s: float
    measurement: Measurement | None = None
    measured_s: float = 0.0
    reason: str = ""

    @property
    def seconds(self) -> float | None:
        """Seconds of one call, the shortest sample; None if the program was not measured or does not run."""
        return None if self.measurement is None else min(self.measurement.times_s)


@dataclass(frozen=True, eq=False)
class Selection:
    """The program that a proposer selected.

    Attributes:
        built: the selected program.
        decisions: of the program; empty for the default schedule.
        proposed, applied: numbers of proposals, and of those that gave a program.
        propose_s: seconds of all proposals.
        seconds: of proposing, building and measuring together.
        reason: why it is the default schedule; "" if it is not.
        best_by_measurement: seconds of one call of the fastest program after each measurement; infinite while
            none runs.
    """

    built: Built
    decisions: tuple[tuple[str, int | tuple[int, ...]], ...]
    proposed: int
    applied: int
    propose_s: float
    seconds: float
    reason: str = ""
    best_by_measurement: tuple[float, ...] = ()


@dataclass(eq=False)
class Subject:
    """A task with all its programs so far; each program is built and measured once.

    Attributes:
        bench: for the measurements.
        task: of the programs.
        space: of the task; None if no rule matches it.
        why: the reason for that.
    """

    bench: Bench
    task: Task
    space: DesignSpace | None = None
    why: str = ""
    _made: dict[object, Trial] = field(default_factory=dict)
    _measured: dict[object, Trial] = field(default_factory=dict)

    def __post_init__(self) -> None:
        profile = self.bench.profile
        try:
            self.space = space_for(self.task, profile.hardware, profile.threads)
        except ScheduleError as error:
            self.why = str(error)

    def select(self, proposer: Proposer, budget: int, seed: int) -> Selection:
        """The first proposal that gives a program, or the best of `budget` measured ones.

        If there is none, the default schedule is selected, as in the product.

        Args:
            proposer: of the programs.
            budget: number of measurements.
            seed: of the proposer.

        Raises:
            BuildError: not even the default schedule compiles.
        """
        proposed = self.propose(proposer, max(budget, 1), (), seed)
        return self.chosen(proposed, measured=budget > 0)

    def chosen(self, proposed: Proposed, measured: bool) -> Selection:
        """The fastest measured program, or the first proposal that gives a program.

        Raises:
            BuildError: there is none, and not even the default schedule compiles.
        """
        best: tuple[float, Candidate, Built] | None = None
        total, applied, reason = proposed.seconds, 0, proposed.reason
        best_by_measurement: list[float] = []
        for candidate in proposed.candidates:
            trial = self.measured(candidate) if measured else self.made(candidate)
            total += trial.made_s + trial.measured_s
            applied += trial.applied
            reason = trial.reason or reason
            if measured:
                best_by_measurement.append(
                    min([math.inf if trial.seconds is None else trial.seconds, *best_by_measurement[-1:]])
                )
            if trial.built is None or (measured and trial.seconds is None):
                continue
            seconds = trial.seconds if trial.seconds is not None else 0.0
            if best is None or seconds < best[0]:
                best = (seconds, candidate, trial.built)
        count = len(proposed.candidates)
        if best is not None:
            return Selection(
                best[2],
                best[1].decisions,
                count,
                applied,
                proposed.seconds,
                total,
                best_by_measurement=tuple(best_by_measurement),
            )
        built = self.bench.build(default_schedule(self.task.function))
        total += built.build_s
        return Selection(built, (), count, applied, proposed.seconds, total, reason or "no proposal")

    def propose(
        self,
        proposer: Proposer,
        count: int,
        history: Sequence[tuple[Candidate, Measurement]],
        seed: int,
    ) -> Proposed:
        """Up to `count` programs, with the seconds of proposing."""
        begin = time.perf_counter()
        candidates, reason = self._candidates(proposer, count, history, seed)
        return Proposed(tuple(candidates), time.perf_counter() - begin, reason)

    def _candidates(
        self,
        proposer: Proposer,
        count: int,
        history: Sequence[tuple[Candidate, Measurement]],
        seed: int,
    ) -> tuple[list[Candidate], str]:
        if self.space is None:
            return [], self.why
        if not self.space.decisions:
            # Nothing to decide: the one program of the space is everybody's.
            return [] if history else [self.space.candidate({}, proposer.name)], ""
        try:
            return proposer.propose(self.space, self.bench.profile, history, count, seed), ""
        except (ScheduleError, TlmError) as error:
            return [], f"{proposer.name}: {error}"

    def made(self, candidate: Candidate) -> Trial:
        """The built program of a candidate; each is built once."""
        if candidate.decisions not in self._made:
            self._made[candidate.decisions] = self._make(candidate)
        return self._made[candidate.decisions]

    def _make(self, candidate: Candidate) -> Trial:
        assert self.space is not None
        begin = time.perf_counter()
        try:
            function = scheduled_function(self.space.apply(candidate))
        except ScheduleError as error:
            return Trial(None, False, time.perf_counter() - begin, reason=str(error))
        try:
            built = self.bench.build(function)
        except BuildError as error:
            return Trial(None, True, time.perf_counter() - begin, reason=str(error))
        return Trial(built, True, time.perf_counter() - begin)

    def measured(self, candidate: Candidate) -> Trial:
        """The program of a candidate, measured in one pass."""
        if candidate.decisions not in self._measured:
            self._measured[candidate.decisions] = self._measure(self.made(candidate))
        return self._measured[candidate.decisions]

    def _measure(self, trial: Trial) -> Trial:
        if trial.built is None:
            return trial
        begin = time.perf_counter()
        measurement, reason = None, ""
        try:
            measurement = self.bench.measure(self.task, trial.built)
        except (MeasureError, SessionLost) as error:
            reason = str(error)
        if measurement is not None and not measurement.trusted:
            # Its time would be compared with others that had the device's full speed.
            reason = f"the device throttled ({', '.join(measurement.throttle_reasons)})"
            measurement = None
        return Trial(trial.built, True, trial.made_s, measurement, time.perf_counter() - begin, reason)
