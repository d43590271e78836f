"""The estimate of programs, of their time or another cost, corrected by what the board has measured."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from functools import partial

import numpy as np

from host.learned_estimate.joined import PartCorrections
from host.learned_estimate.observation import EstimatedProgram, Observation
from host.learned_estimate.power import LearnedPower, with_power
from host.learned_estimate.process import Points, Prediction, RuleProcess, Scales, Similarity
from host.schedules.api import Decisions
from host.schedules.design import DesignSpace
from host.schedules.families import part_rules_of


class LearnedEstimate:
    """The cost of each program by its estimate, corrected by what the board has measured.

    The cost is T_hat (P_hat / reference watts)^a: seconds at the reference power. It is T_hat where a is 0,
    and where no watts are known. T_hat of a program whose parts are decided apart is the sum of that of its
    parts by their own rules, corrected by what such programs have shown beyond that (`joined`).

    Args:
        observations: measured programs of any tasks, the latest last.
        exponent: a, see `host.options.objective`.

    Attributes:
        processes: of T_hat, by rule.
        power: P_hat; None where it does not count.
        exponent: a.
    """

    def __init__(self, observations: Sequence[Observation], exponent: float = 0.0) -> None:
        by_rule: dict[str, list[Observation]] = defaultdict(list)
        for one in observations:
            by_rule[one.rule].append(one)
        whole = {rule: RuleProcess(known) for rule, known in by_rule.items() if not part_rules_of(rule)}
        self._parts = PartCorrections(whole)
        joined = {rule: known for rule, known in by_rule.items() if rule not in whole}
        self.processes = whole | {
            rule: RuleProcess(some, corrections=partial(self._parts.of, rule))
            for rule, some in joined.items()
        }
        self.power = LearnedPower.of(observations) if exponent else None
        self.exponent = exponent

    def means(self, space: DesignSpace, programs: Sequence[Decisions]) -> np.ndarray:
        """The logarithms of the costs of programs of one task, shape (programs,)."""
        estimated = [EstimatedProgram.of(space, values) for values in programs]
        rule = space.rule.name
        found: np.ndarray = np.log([one.estimate_s for one in estimated]) + self._parts.of(rule, estimated)
        process = self.processes.get(rule)
        if process is not None:
            found = found + process.mean(process.points(estimated))
        if self.power is None:
            return found
        return found + self.exponent * self.power.means(rule, estimated)

    def cost_s(self, space: DesignSpace, program: Decisions) -> float:
        """The cost of one call of a program, in seconds at the reference power."""
        return math.exp(float(self.means(space, [program])[0]))

    def predict(self, space: DesignSpace, programs: Sequence[Decisions]) -> Prediction:
        """The predicted logarithms of the costs of programs of one task, with their covariance."""
        estimated = [EstimatedProgram.of(space, values) for values in programs]
        time = self._time(space.rule.name, estimated)
        if self.power is None:
            return time
        return with_power(time, self.power.predict(space.rule.name, estimated), self.exponent)

    def _time(self, rule: str, programs: Sequence[EstimatedProgram]) -> Prediction:
        process, parts = self.processes.get(rule), self._parts.of(rule, programs)
        if process is not None:
            own = process.predict(programs)
            return Prediction(own.mean + parts, own.covariance)
        points = Points.of(rule, programs, ())
        prior = np.log([one.estimate_s for one in programs])
        return Prediction(prior + parts, Similarity.between(points, points).covariance(Scales()))


def expected_choice(prediction: Prediction, first: int) -> int:
    """The program of the least expected cost, without measuring; the first one where none is below it.

    It is for programs that were proposed without the prediction. Of these, what is expected is what counts: a
    margin for doubt costs more than half of what is gained (docs/tuning.md).

    Args:
        prediction: of programs of one task.
        first: position of the one that the estimate alone chose.
    """
    least = int(np.argmin(prediction.mean))
    return least if prediction.mean[least] < prediction.mean[first] else first


# A program that the prediction itself has found counts with its expected gain less so many standard
# deviations of that gain.
_CAUTION = 0.5


def cautious_choice(prediction: Prediction, first: int) -> int:
    """The program to take instead of the first one, where the prediction itself has found the others.

    The least of many predictions is too low, and a search looks for it. So a program of which little is known
    has to promise more.

    Args:
        prediction: of programs of one task.
        first: position of the one to beat.
    """
    own = np.diag(prediction.covariance)
    variance = own + own[first] - 2.0 * prediction.covariance[:, first]
    score = prediction.mean - prediction.mean[first] + _CAUTION * np.sqrt(np.maximum(variance, 0.0))
    score[first] = 0.0
    return int(np.argmin(score))
