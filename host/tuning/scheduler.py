"""Selection of the tasks that are measured next.

After the TLM artifact's task scheduler (weight times gain over a look-back window); the estimate of the gain
and its constants are ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

# Trials of a task before gains are estimated: one alone has nothing to be compared with.
FIRST_TRIALS = 2
# The window is half of a task's trials, so many at least.
_MIN_WINDOW = 4
# Relative gain that one window is expected to bring when the last one brought none.
_PRIOR_GAIN = 0.05
# A task is given up when so many trials all failed.
_MAX_FAILURES = 8


@dataclass(frozen=True)
class TaskState:
    """The trials of a task so far.

    Attributes:
        key: of the task.
        weight: calls in one run of the model.
        times_s: seconds of one call for each trial, in order; infinite for one that failed.
        pending: trials without a result.
        estimate_s: estimated seconds of one call, used until something is measured.
    """

    key: str
    weight: float
    times_s: tuple[float, ...] = ()
    pending: int = 0
    estimate_s: float = 1.0

    @property
    def best_s(self) -> float:
        """Seconds of the best program so far; infinite if there is none."""
        return min(self.times_s, default=math.inf)

    @property
    def abandoned(self) -> bool:
        """Whether the task is abandoned: enough trials failed and none succeeded."""
        return math.isinf(self.best_s) and len(self.times_s) >= _MAX_FAILURES

    @property
    def seconds(self) -> float:
        """Seconds of this task in one run of the model, measured or estimated."""
        return self.weight * (self.best_s if math.isfinite(self.best_s) else self.estimate_s)


def expected_gain(times_s: Sequence[float], further: int = 0) -> float:
    """Relative gain that the next trial of a task is expected to bring, between 0 and 1.

    The gain over the look-back window (the later half of the trials, at least four) plus 5%, because a window
    without a gain does not exclude a later gain, divided by the number of trials in the window. Without
    improvement it falls as 1/n, like the probability that the n-th of many equal draws is the best.

    Args:
        times_s: seconds of each trial, in order; infinite for one that failed.
        further: trials before the next one that have no result yet.
    """
    window = max(_MIN_WINDOW, len(times_s) // 2)
    earlier, recent = times_s[:-window], times_s[-window:]
    before = min(earlier, default=math.inf)
    if math.isinf(before):
        before = next((time for time in recent if math.isfinite(time)), math.inf)
    now = min(before, *recent) if recent else before
    gain = 1.0 - now / before if math.isfinite(before) else 0.0
    return min(1.0, (gain + _PRIOR_GAIN) / (max(1, len(recent)) + further))


def score(state: TaskState, given: int = 0) -> float:
    """Seconds of one run of the model that the next trial of a task is expected to save."""
    return state.seconds * expected_gain(state.times_s, state.pending + given)


def allocate_trials(states: Iterable[TaskState], count: int) -> dict[str, int]:
    """How many of the next `count` trials each task gets; tasks that get none are left out.

    Tasks with fewer than two trials come first, in the order of their estimated time; then each trial goes to
    the task with the highest score. The key decides ties.
    """
    open_states = sorted((one for one in states if not one.abandoned), key=lambda one: one.key)
    given: dict[str, int] = {}
    for state in sorted(open_states, key=lambda one: -one.seconds):
        wanted = max(0, FIRST_TRIALS - len(state.times_s) - state.pending)
        share = min(wanted, count - sum(given.values()))
        if share:
            given[state.key] = share
    while open_states and sum(given.values()) < count:
        best = max(open_states, key=lambda one: score(one, given.get(one.key, 0)))
        given[best.key] = given.get(best.key, 0) + 1
    return given


def expected_saving(states: Iterable[TaskState], given: Mapping[str, int]) -> float:
    """The share of the model's time that the given trials are expected to save; 1 if a task is unmeasured."""
    known = list(states)
    if any(given.get(one.key) and math.isinf(one.best_s) and not one.abandoned for one in known):
        return 1.0
    total = sum(one.seconds for one in known if math.isfinite(one.seconds))
    saved = sum(score(one, number) for one in known for number in range(given.get(one.key, 0)))
    return saved / total if total else 0.0
