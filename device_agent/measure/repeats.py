"""Decides when the warm-up ends, how many samples are enough, and how many calls make a sample.

The native executor decides in the same way (`native/executor/measure/repeats.h`). Both run the cases of
`tests/vectors/measuring.json`.
"""

from __future__ import annotations

import collections
import math
from typing import Deque, NamedTuple, Optional, Sequence, Tuple

from device_agent.contract.measuring import MEASURING, KernelPlan, Plan


class WarmUp:
    """The runs before the first one that counts.

    Args:
        plan: plan of the measurement.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._runs = 0
        self._shortest_s = math.inf
        self._recent_s: Deque[float] = collections.deque(maxlen=2 * MEASURING.stable_runs)

    def add(self, run_s: float, spent_s: float) -> bool:
        """Adds one run.

        Args:
            run_s: seconds of the run.
            spent_s: seconds since the first run began.

        Returns:
            Whether the warm-up is over: there were enough runs, and either the times no longer fall or their
            time is used up.
        """
        plan = self._plan
        self._runs += 1
        self._shortest_s = min(self._shortest_s, run_s)
        self._recent_s.append(run_s)
        enough = self._runs >= plan.warmup_runs and spent_s >= plan.warmup_s
        patient = spent_s < MEASURING.longest_warmup * plan.warmup_s
        return (enough and not (patient and is_falling(self._recent_s))) or spent_s > plan.max_time_s

    @property
    def runs_per_sample(self) -> int:
        """The number of runs that last for `min_sample_s`, by the shortest run of the warm-up."""
        return max(1, math.ceil(self._plan.min_sample_s / max(self._shortest_s, MEASURING.least_s)))


def medians(recent_s: Sequence[float]) -> Optional[Tuple[float, float]]:
    """The medians of the earlier and the later half of the latest runs; None if there are too few runs."""
    runs = MEASURING.stable_runs
    times = list(recent_s)[-2 * runs :]
    if len(times) < 2 * runs:
        return None
    return sorted(times[:runs])[runs // 2], sorted(times[runs:])[runs // 2]


def is_falling(recent_s: Sequence[float]) -> bool:
    """Whether the latest runs still get faster, or are too few to decide.

    Too few runs do not count as stable, because a model with few long runs is the one whose first runs matter
    most.
    """
    found = medians(recent_s)
    return found is None or found[1] < (1.0 - MEASURING.stable_within) * found[0]


def enough_samples(plan: Plan, samples: int, spent_s: float, window_s: float) -> bool:
    """Whether a window is long enough.

    Args:
        plan: plan of the measurement.
        samples: number of samples in the window.
        spent_s: seconds since the window began.
        window_s: required length of an energy window; 0 without energy.
    """
    if spent_s >= max(plan.max_time_s, window_s):
        return True
    # An energy window has its full length for any number of samples.
    if spent_s >= window_s and samples >= plan.max_repeats:
        return True
    return samples >= plan.min_repeats and spent_s >= max(plan.min_time_s, window_s)


def calls_together(once_s: float) -> int:
    """How many calls of a kernel are made together while its energy is measured.

    Args:
        once_s: seconds of one call.
    """
    return max(1, math.ceil(MEASURING.batch_s / max(once_s, MEASURING.least_s)))


class KernelCounts(NamedTuple):
    """The number of calls of a kernel: `repeat` samples of `number` calls."""

    number: int
    repeat: int


def kernel_counts(plan: KernelPlan, first_s: float, once_s: float) -> KernelCounts:
    """How often a kernel is called.

    Args:
        plan: plan of the measurement.
        first_s: seconds of the kernel's first call, less than `plan.max_s`.
        once_s: seconds of the second call.
    """
    call_s = max(once_s, MEASURING.least_s)
    shortest_s = 0.0 if plan.flush_bytes else plan.min_repeat_ms * 1e-3
    number = max(plan.number, math.ceil(shortest_s / call_s))
    affordable = math.floor((plan.max_s - first_s) / (number * call_s))
    return KernelCounts(number, max(1, min(plan.repeat, affordable)))
