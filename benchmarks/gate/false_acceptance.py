"""How often the gate accepts where there is nothing to learn, from many shuffles of one training.

With times that are shuffled within each task, what a model has learned from other tasks says nothing about
the tasks that judge it. So the models of one training are judged again and again, with new shuffles of the
times of the tasks that they have not seen. What is accepted then is accepted wrongly. One dependence is lost:
a task that judges the model of one fold has taught those of the two others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from host.statistics import MIN_TRIALS, Estimate, one_sided_bound, t975
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model.gpt2 import LanguageModel
from host.tlm.model.network import load_model
from host.tlm.training import gate
from host.tlm.training.example import Example
from host.tlm.training.finetune import fold_name

# Shuffles of the times of each task.
SHUFFLES = 2000
# Numbers of tasks that judge, beside all of them.
COUNTS = (3, 5, 10, 20, 40)


def false_acceptance(present: Path, folds: Path, examples: Sequence[Example]) -> dict[str, float]:
    """The share of shuffles for which the gate accepts, by the number of tasks that judge.

    Args:
        present: the checkpoint that is judged beside the models of the folds.
        folds: the folder with the models of the folds.
        examples: the tasks that they learned from.
    """
    vocabulary = Vocabulary()
    old = load_model(present, vocabulary)[0]
    gains = []
    for fold in gate.folds(examples):
        new = load_model(folds / fold_name(fold.number), vocabulary)[0]
        gains += gains_of(old, new, fold.withheld, vocabulary)
    table = np.stack(gains)
    counts = [*(count for count in COUNTS if count < len(table)), len(table)]
    return {str(count): accepted_share(table[:count]) for count in counts}


def gains_of(
    old: LanguageModel, new: LanguageModel, withheld: Sequence[Example], vocabulary: Vocabulary
) -> list[NDArray[np.float64]]:
    """For each task, (2, shuffles) logarithms of the new model's speed over the old one's and over chance."""
    withheld = [gate.thinned(example) for example in withheld]
    likely = zip(
        withheld,
        gate.likelihoods(old, vocabulary, withheld),
        gate.likelihoods(new, vocabulary, withheld),
        strict=True,
    )
    found = []
    for example, before, after in likely:
        generator = np.random.default_rng(sum(example.prompt))
        times = np.log([slower for _, slower in example.programs])
        shuffles = generator.permuted(np.tile(times, (SHUFFLES, 1)), axis=1)
        logs = (before, after, [0.0] * len(times))
        taken = [_taken(shuffles, gate.orders_of(example, one, vocabulary)) for one in logs]
        found.append(np.stack([taken[0] - taken[1], taken[2] - taken[1]]))
    return found


def _taken(shuffles: NDArray[np.float64], orders: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """(shuffles,) logarithms of times: means over draws, of the first program and of the best."""
    found = np.zeros(len(shuffles))
    for order in orders:
        found += 0.5 * (shuffles[:, order[0]] + shuffles[:, list(order)].min(axis=1))
    return found / len(orders)


def accepted_share(gains: NDArray[np.float64]) -> float:
    """The share of shuffles that the gate accepts.

    Args:
        gains: (tasks, 2, shuffles), see `gains_of`.
    """
    count = len(gains)
    means = np.exp(gains.mean(axis=0))
    if count < MIN_TRIALS:
        return 0.0
    half = t975(count - 1) * gains.std(axis=0, ddof=1) / math.sqrt(count)
    lows = means * np.exp(-half)
    accepted = 0
    for mean, low in zip(means.T.tolist(), lows.T.tolist(), strict=True):
        bound = one_sided_bound(Estimate(mean[0], low[0]))
        accepted += gate.accepts(bound, mean[1])
    return float(accepted / gains.shape[2])
