"""The power of programs, learned from those whose energy was measured.

    E_hat(program) = T_hat(program) P_hat(program)

P_hat is what is expected of a program by its threads (`ByThreads`) times a correction that a process of each
rule learns (`host.learned_estimate.process`), which withheld watts judge. For tasks that have measured watts,
P_hat is used unless it is farther off than the mean of a task's other programs: there, what it proposes is
measured. For other tasks it has to be shown to be closer than the median of the board.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from host.learned_estimate.observation import EstimatedProgram, Observation
from host.learned_estimate.process import Points, Prediction, RuleProcess, Scales, Similarity, Target
from host.statistics import mean_of, one_sided_bound

# Programs, or tasks, of a rule from which on withheld watts say anything.
_LEAST = 6
# Watts of a program are within a factor of four of those of its task; beyond that, the sensor is wrong.
_LEAST_FARTHEST = math.log(4.0)
# What a doubling of the threads adds to the logarithm of watts as long as nothing is measured, how much that
# may differ between boards, and what else differs between programs of a task. It is 0 where idling is all of
# the power, and log(2) where cores are: assumed, without a measurement.
_SLOPE, _SLOPE_DEVIATION, _WITHIN = 0.4, 0.2, 0.2
# Of the logarithm of watts: they differ less between programs than times do, and are measured in two windows.
_SCALES = Scales(1.4, together=0.1, single=0.15, task=0.05, offset=0.2, noise=0.03, linear=0.2)
_CHOICES = tuple(
    # Of what a doubling of the threads takes, measurements of one number of them say nothing.
    Scales(length, together, single, task, offset=0.2, noise=noise, linear=_SCALES.linear)
    for length in (1.4, 2.5)
    for together, task in ((0.02, 0.02), (0.1, 0.03), (0.3, 0.05), (0.1, 0.15))
    for single in (0.03, 0.15, 0.4)
    for noise in (0.015, 0.04, 0.15)
)


@dataclass(frozen=True)
class WithheldError:
    """How far predicted watts are from withheld ones, as a root mean square of logarithms.

    Attributes:
        learned: of the process.
        constant: of constant watts.
        count: of what was withheld.
        bound: one-sided 95% bound of the mean difference of the two squared errors, the constant's less the
            learned one's, over the mean of the former; None where there are too few.
    """

    learned: float
    constant: float
    count: int
    bound: float | None = None

    @classmethod
    def of(cls, learned: Sequence[float], constant: Sequence[float]) -> WithheldError:
        """From the squared errors of what was withheld."""
        mean = math.fsum(constant) / len(constant)
        # The bound of a geometric mean is that of a mean of logarithms.
        gains = [math.exp((flat - own) / mean) for own, flat in zip(learned, constant, strict=True) if mean]
        bound = one_sided_bound(mean_of(gains)) if len(gains) >= _LEAST else None
        root = math.sqrt(math.fsum(learned) / len(learned))
        return cls(root, math.sqrt(mean), len(learned), None if bound is None else math.log(bound))

    @property
    def convinces(self) -> bool:
        """Whether the process is shown to be closer, for choices that nobody measures."""
        return self.count >= _LEAST and self.bound is not None and self.bound > 0.0

    @property
    def allows(self) -> bool:
        """Whether the process is not known to be farther off, for choices that are measured next."""
        return self.count < _LEAST or self.learned < self.constant


@dataclass(frozen=True)
class ByThreads:
    """The watts that are expected of a program by the threads that it uses, over the median of the board.

    Attributes:
        slope: what a doubling of the threads adds to the logarithm of watts.
        middle: the logarithm of watts over the median, without the slope, of the middle program.
    """

    slope: float
    middle: float

    @classmethod
    def of(cls, observations: Sequence[Observation], reference_w: float) -> ByThreads:
        """The slope that programs of a task show by their differences, beside what is assumed.

        The posterior mean of a Bayesian linear regression with one coefficient, whose prior is normal
        (Bishop, "Pattern Recognition and Machine Learning", 2006, equation 3.50).

        Args:
            observations: of the board, all with watts.
            reference_w: their median.
        """
        logs = np.log([(one.watts or reference_w) / reference_w for one in observations])
        threads = np.array([_doublings(one.program) for one in observations])
        tasks = np.array([one.program.task for one in observations])
        precision, weighted = 1.0 / _SLOPE_DEVIATION**2, _SLOPE / _SLOPE_DEVIATION**2
        for task in np.unique(tasks):
            own = tasks == task
            apart = threads[own] - threads[own].mean()
            precision += float(apart @ apart) / _WITHIN**2
            weighted += float(apart @ logs[own]) / _WITHIN**2
        slope = weighted / precision
        return cls(slope, float(np.median(logs - slope * threads)))

    def expected(self, program: EstimatedProgram) -> float:
        """Watts over the median of the board."""
        return math.exp(self.middle + self.slope * _doublings(program))


def _doublings(program: EstimatedProgram) -> float:
    return math.log2(program.threads)


class RulePower:
    """The watts of the programs of one rule.

    Args:
        observations: of the rule, all with watts.
        reference_w: the median of the board.
        by_threads: what is expected of programs of any rule.

    Attributes:
        reference_w: the median of the board.
        process: of the logarithms of watts over that.
        rule: its name.
        watts: of the observations.
        programs: judged by the other programs of their task.
        tasks: judged by other tasks.
    """

    def __init__(
        self, observations: Sequence[Observation], reference_w: float, by_threads: ByThreads
    ) -> None:
        self.reference_w = reference_w
        self._by_threads = by_threads
        self.process = RuleProcess(observations, _target(reference_w, by_threads))
        self.rule = self.process.rule
        known = self.process.observations
        self.watts = tuple(one.watts for one in known if one.watts is not None)
        self._positions = {id(one): position for position, one in enumerate(known)}
        by_task: dict[str, list[int]] = defaultdict(list)
        by_program: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for position, one in enumerate(known):
            by_task[one.program.task].append(position)
            by_program[one.program.key].append(position)
        logs = self._expected([one.program for one in known]) + self.process.residuals
        self._means = {task: float(logs[own].mean()) for task, own in by_task.items()}
        pairs = []
        for (task, *_), own in by_program.items():
            others = [one for one in by_task[str(task)] if one not in own]
            if others:
                pairs.append((np.array(own), float(logs[others].mean())))
        self.programs = self._judged(logs, pairs)
        self.tasks = self._judged(logs, [(np.array(own), 0.0) for own in by_task.values()])

    def _expected(self, programs: Sequence[EstimatedProgram]) -> np.ndarray:
        found: np.ndarray = np.log([self._by_threads.expected(one) for one in programs])
        return found

    def _judged(self, logs: np.ndarray, groups: Sequence[tuple[np.ndarray, float]]) -> WithheldError:
        """The errors of groups of observations that are withheld in turn.

        Args:
            logs: of the watts over the median of the board, shape (observations,).
            groups: positions, and the logarithm that constant watts give them.
        """
        if not groups:
            return WithheldError(0.0, 0.0, 0)
        learned, flat = [], []
        predicted = self.process.withheld([own for own, _ in groups])
        for (own, constant), (mean, _) in zip(groups, predicted, strict=True):
            learned.append(float(np.mean((self.process.residuals[own] - mean) ** 2)))
            flat.append(float(np.mean((logs[own] - constant) ** 2)))
        return WithheldError.of(learned, flat)

    def predict(self, programs: Sequence[EstimatedProgram]) -> Prediction:
        """Logarithms of watts over the median of the board, of programs of one task."""
        found = self.process.predict(programs)
        constant = self._constant(programs)
        # How unsure it is does not depend on the watts: what was never tried may take less.
        return found if constant is None else replace(found, mean=np.full(len(programs), constant))

    def means(self, programs: Sequence[EstimatedProgram]) -> np.ndarray:
        """The means of `predict`, shape (programs,)."""
        constant = self._constant(programs)
        if constant is None:
            found: np.ndarray = self._expected(programs) + self.process.mean(self.process.points(programs))
            return found
        return np.full(len(programs), constant)

    def _constant(self, programs: Sequence[EstimatedProgram]) -> float | None:
        """The logarithm that all programs of a task get; None where the process is used, or for none."""
        if not programs:
            return None
        mean = self._means.get(programs[0].task)
        if mean is None:
            return None if self.tasks.convinces else 0.0
        return None if self.programs.allows else mean

    def withheld(self, group: Sequence[Observation], judged: Sequence[Observation]) -> Prediction:
        """The prediction of observations whose tasks taught nothing.

        Args:
            group: what is withheld, whole tasks.
            judged: those of them that are predicted, all with watts.
        """
        own = [self._positions[id(one)] for one in group if self.holds(one)]
        [(mean, covariance)] = self.process.withheld([np.array(own)])
        which = [own.index(self._positions[id(one)]) for one in judged]
        expected = self._expected([one.program for one in judged])
        found = expected + mean[which] if self.tasks.convinces else np.zeros(len(which))
        return Prediction(found, covariance[np.ix_(which, which)])

    def relative(self, one: Observation) -> float:
        """Watts of an observation over the median of the board."""
        return (one.watts or self.reference_w) / self.reference_w

    def holds(self, one: Observation) -> bool:
        """Whether an observation is one of those that taught."""
        return id(one) in self._positions


class LearnedPower:
    """The watts of programs of a board.

    Args:
        observations: of the board, one at least with watts; those without teach nothing.

    Attributes:
        reference_w: the median of all watts.
        rules: by name, those of which any watts are known.
    """

    def __init__(self, observations: Sequence[Observation]) -> None:
        known = _with_watts(observations)
        watts = [one.watts for one in known if one.watts is not None]
        self.reference_w = statistics.median(watts)
        by_rule: dict[str, list[Observation]] = defaultdict(list)
        for one in known:
            by_rule[one.rule].append(one)
        by_threads = ByThreads.of(known, self.reference_w)
        self.rules = {rule: RulePower(own, self.reference_w, by_threads) for rule, own in by_rule.items()}

    @classmethod
    def of(cls, observations: Sequence[Observation]) -> LearnedPower | None:
        """What the observations teach; None where none has watts."""
        return cls(observations) if _with_watts(observations) else None

    def predict(self, rule: str, programs: Sequence[EstimatedProgram]) -> Prediction:
        """Logarithms of watts over the reference, of programs of one task."""
        known = self.rules.get(rule)
        if known is not None:
            return known.predict(programs)
        points = Points.of(rule, programs, ())
        return Prediction(np.zeros(len(programs)), Similarity.between(points, points).covariance(_SCALES))

    def means(self, rule: str, programs: Sequence[EstimatedProgram]) -> np.ndarray:
        """The means of `predict`, shape (programs,)."""
        known = self.rules.get(rule)
        return np.zeros(len(programs)) if known is None else known.means(programs)


def _with_watts(observations: Sequence[Observation]) -> list[Observation]:
    # Another board has another power, and its sensor another boundary.
    return [one for one in observations if one.watts is not None and not one.board]


def _target(reference_w: float, by_threads: ByThreads) -> Target:
    return Target(
        lambda one: (one.watts or reference_w) / reference_w / by_threads.expected(one.program),
        by_threads.expected,
        _SCALES,
        _CHOICES,
        _LEAST,
        _LEAST_FARTHEST,
    )


def with_power(time: Prediction, power: Prediction, exponent: float) -> Prediction:
    """The logarithm of a cost, T_hat (P_hat / reference)^a, whose parts are taken to err independently."""
    return replace(
        time,
        mean=time.mean + exponent * power.mean,
        covariance=time.covariance + exponent**2 * power.covariance,
    )
