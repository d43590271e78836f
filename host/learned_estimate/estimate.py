"""The estimate of programs, corrected by what the board has measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from host.learned_estimate.observation import EstimatedProgram, Observation
from host.learned_estimate.process import Points, Prediction, RuleProcess, Scales, Similarity
from host.schedules.api import Decisions
from host.schedules.design import DesignSpace


class LearnedEstimate:
    """The estimate of each program, corrected by what the board has measured.

    Args:
        observations: measured programs of any tasks, the latest last.
    """

    def __init__(self, observations: Sequence[Observation]) -> None:
        by_rule: dict[str, list[Observation]] = defaultdict(list)
        for one in observations:
            by_rule[one.rule].append(one)
        self.processes = {rule: RuleProcess(known) for rule, known in by_rule.items()}

    def means(self, space: DesignSpace, programs: Sequence[Decisions]) -> np.ndarray:
        """The logarithms of T_hat of programs of one task, shape (programs,)."""
        estimated = [EstimatedProgram.of(space, values) for values in programs]
        found: np.ndarray = np.log([one.estimate_s for one in estimated])
        process = self.processes.get(space.rule.name)
        return found if process is None else found + process.mean(process.points(estimated))

    def predict(self, space: DesignSpace, programs: Sequence[Decisions]) -> Prediction:
        """The predicted logarithms of the seconds of programs of one task, with their covariance."""
        estimated = [EstimatedProgram.of(space, values) for values in programs]
        process = self.processes.get(space.rule.name)
        if process is not None:
            return process.predict(estimated)
        points = Points.of(space.rule.name, estimated, ())
        prior = np.log([one.estimate_s for one in estimated])
        return Prediction(prior, Similarity.between(points, points).covariance(Scales()))


# A program is preferred by its expected gain less so many standard deviations of that gain.
_CAUTION = 0.5


def cautious_choice(prediction: Prediction, first: int) -> int:
    """The program to take without measuring instead of the first one, or the first one.

    A program of which little is known has to promise more.

    Args:
        prediction: of programs of one task.
        first: position of the one that the estimate alone chose.
    """
    own = np.diag(prediction.covariance)
    variance = own + own[first] - 2.0 * prediction.covariance[:, first]
    score = prediction.mean - prediction.mean[first] + _CAUTION * np.sqrt(np.maximum(variance, 0.0))
    score[first] = 0.0
    return int(np.argmin(score))
