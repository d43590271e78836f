"""The correction of the estimate as boosted trees over what is known of a program."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import xgboost

from host.learned_estimate.observation import EstimatedProgram, Observation
from host.schedules.design import TOTAL

# A correction farther than this from the median of its task says that the program is slow, not how slow.
_FARTHEST = 1.0
_LEAST_SHARE = -8.0
# A task of which fewer programs were measured does not say which of them is better.
_LEAST_PROGRAMS = 2
# Each ensemble of so many trees sees tasks drawn with replacement; the mean of the ensembles counts.
_ENSEMBLES, _ROUNDS = 6, 80
_PARAMETERS = {
    "max_depth": 4,
    "eta": 0.1,
    "subsample": 0.7,
    "colsample_bytree": 0.5,
    "min_child_weight": 3,
    "reg_lambda": 3.0,
    "nthread": 1,
}


Describe = Callable[[EstimatedProgram], Mapping[str, float]]


class ResidualTrees:
    """The correction of one rule's estimate, learned from measured programs.

    The label is the logarithm of measured over estimated time less its median in the task: only the order of
    the programs of one task counts.

    Args:
        observations: of the rule.
        seed: of the trees.
        describe: more features of a program, always of the same names; None for the decisions and the parts
            of the estimate alone.
    """

    def __init__(
        self, observations: Sequence[Observation], seed: int, describe: Describe | None = None
    ) -> None:
        self._names = sorted({name for one in observations for name in one.program.values})
        self._parts = sorted({name for one in observations for name in one.program.estimated_s} - {TOTAL})
        self._describe = describe
        self._trees: list[xgboost.Booster] = []
        kept, labels = _labelled(observations)
        if not kept:
            return
        features = self.features([one.program for one in kept])
        tasks = [one.program.task for one in kept]
        different = sorted(set(tasks))
        generator = np.random.default_rng(seed)
        for number in range(_ENSEMBLES):
            drawn = Counter(generator.choice(different, len(different)).tolist())
            weights = np.array([float(drawn[task]) for task in tasks])
            matrix = xgboost.DMatrix(
                features[weights > 0], np.array(labels)[weights > 0], weight=weights[weights > 0]
            )
            self._trees.append(xgboost.train({**_PARAMETERS, "seed": number}, matrix, _ROUNDS))

    def features(self, programs: Sequence[EstimatedProgram]) -> np.ndarray:
        """What the trees see of programs, shape (programs, features).

        The decisions, the size of the register tile, the share of each part of the estimate, and the
        estimate, all in logarithms to base 2, and then what `describe` says.
        """
        rows = []
        for one in programs:
            decided = [math.log2(1.0 + max(0, one.values.get(name, 0))) for name in self._names]
            tile = math.prod(max(1, one.values.get(name, 1)) for name in ("vectors", "rows", "rows2"))
            shares = [_share(one, name) for name in self._parts]
            more = list(self._describe(one).values()) if self._describe else []
            rows.append([*decided, math.log2(tile), *shares, math.log2(one.estimate_s), *more])
        return np.array(rows)

    def correction(self, programs: Sequence[EstimatedProgram]) -> np.ndarray:
        """Logarithms by which to correct the estimates of programs, shape (programs,)."""
        if not self._trees:
            return np.zeros(len(programs))
        matrix = xgboost.DMatrix(self.features(programs))
        found: np.ndarray = np.mean([trees.predict(matrix) for trees in self._trees], axis=0)
        return found


def _share(program: EstimatedProgram, part: str) -> float:
    share = program.estimated_s.get(part, 0.0) / program.estimate_s
    return max(_LEAST_SHARE, math.log2(share)) if share > 0.0 else _LEAST_SHARE


def _labelled(observations: Sequence[Observation]) -> tuple[list[Observation], list[float]]:
    by_task: dict[tuple[str, str], list[Observation]] = defaultdict(list)
    for one in observations:
        by_task[one.model, one.program.task].append(one)
    kept, labels = list[Observation](), list[float]()
    for same in by_task.values():
        if len(same) >= _LEAST_PROGRAMS:
            logs = [math.log(one.seconds / one.program.estimate_s) for one in same]
            middle = float(np.median(logs))
            kept += same
            labels += [min(max(log - middle, -_FARTHEST), _FARTHEST) for log in logs]
    return kept, labels
