"""What it costs to choose one program of a task in some way, beside the fastest that measurements find.

The fastest of many noisy times owes a part of its lead to luck. Here it is chosen by one half of the rounds,
and everything is timed by the other half.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

# How many programs are drawn, or proposed, for an estimate to choose from.
FEW = 4


def log_excess(times_s: np.ndarray) -> np.ndarray:
    """Logarithm of each program's time over that of the fastest one.

    The fastest by one half of the rounds is timed by the other half, as all programs are; the mean is over
    all ways to halve the rounds. The time of a program is its least one: other work only adds time.

    Args:
        times_s: seconds, [programs, rounds], of at least two rounds.

    Returns:
        [programs]; of the fastest ones about 0, on either side of it.
    """
    rounds = range(times_s.shape[1])
    halves = list(itertools.combinations(rounds, len(rounds) // 2))
    total = np.zeros(len(times_s))
    for half in halves:
        others = [number for number in rounds if number not in half]
        fastest = times_s[:, half].min(axis=1).argmin()
        judged = np.log(times_s[:, others].min(axis=1))
        total += judged - judged[fastest]
    return total / len(halves)


def least_of_random(estimates: np.ndarray, pool: np.ndarray, count: int) -> np.ndarray:
    """How probable each program is to have the least estimate among some random ones.

    Args:
        estimates: of the programs, [programs].
        pool: which programs are drawn from, [programs] of bool.
        count: how many different ones are drawn; 1 is chance, and the whole pool is the estimate's choice.

    Returns:
        Probabilities, [programs]; programs of the same estimate share theirs.
    """
    found = np.zeros(len(estimates))
    drawn = estimates[pool]
    every = math.comb(len(drawn), count)
    for value in np.unique(drawn):
        above, not_below = int((drawn > value).sum()), int((drawn >= value).sum())
        least = (math.comb(not_below, count) - math.comb(above, count)) / every
        found[pool & (estimates == value)] = least / (not_below - above)
    return found


def choices(estimates: np.ndarray, origins: Sequence[str], whole_sweep: bool) -> Mapping[str, np.ndarray]:
    """How probable each program is to be chosen, by the way of choosing.

    A way that needs more programs than were measured is left out.

    Args:
        estimates: of the programs, [programs].
        origins: who proposed each (`research.collection.dataset.MeasuredProgram`); Gensor's in its order.
        whole_sweep: whether random programs are a sample of the space. Where the space is smaller than a
            sweep, they are only what Gensor left.

    Returns:
        Probabilities, [programs], by way: "random", one of all; "random_few", the least estimate of `FEW` of
        them; "space" and "space_few", the same of the uniformly random ones; "gensor", Gensor's first;
        "gensor_few", the least estimate of Gensor's; "all", the least estimate of all.
    """
    named = np.array(origins)
    every, gensor, uniform = np.ones(len(named), bool), named == "gensor", named == "uniform"
    found = {"random": least_of_random(estimates, every, 1)}
    if len(named) >= FEW:
        found["random_few"] = least_of_random(estimates, every, FEW)
    if whole_sweep and uniform.sum() >= FEW:
        found["space"] = least_of_random(estimates, uniform, 1)
        found["space_few"] = least_of_random(estimates, uniform, FEW)
    if gensor.any():
        found["gensor"] = np.eye(len(named))[int(gensor.argmax())]
    if gensor.sum() >= FEW:
        found["gensor_few"] = least_of_random(estimates, gensor, int(gensor.sum()))
    found["all"] = least_of_random(estimates, every, len(named))
    return found
