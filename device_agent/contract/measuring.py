"""How measurements are made, out of `measuring.json`, which the native executor's build reads too.

A whole number in the file is a count, a number with a point is one of seconds, milliseconds or degrees.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, NamedTuple


def _read() -> Dict[str, Dict[str, Any]]:
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "measuring.json")
    with open(path, encoding="utf-8") as file:
        return dict(json.load(file))


_DATA = _read()
_PLAN, _KERNEL, _VARIANT = _DATA["plan"], _DATA["kernel_plan"], _DATA["variant_plan"]


class Plan(NamedTuple):
    """How long and how often to run a model.

    Attributes:
        warmup_s: run unmeasured for at least this long.
        warmup_runs: and at least so often.
        min_repeats: samples to take at least, unless `max_time_s` ends it.
        max_repeats: samples to take at most in a window, unless energy needs a longer one.
        min_time_s: sample for at least this long.
        max_time_s: stop after this long whatever the number of samples (one at least is taken).
        min_sample_s: repeat a shorter run within one sample until it lasts as long.
        idle_s: seconds without work for the idle power, once a session, where energy is measured.
        energy: whether to measure energy.
        energy_s: where a sensor is read, length of a window at least.
        energy_updates: readings of the sensor in a window, at least.
        energy_most_s: length of a window at most, for sensors that are slow.
        trials: windows of energy, with cooling down in between.
        cool_c: degrees above the start within which the hottest zone has to be before a further window.
        cool_s: longest time to wait for that.
        retries: how often a window in which the board throttled is measured again, after cooling.
        start_c: temperature to begin windows of energy at, 0 for the present one.
    """

    warmup_s: float = _PLAN["warmup_s"]
    warmup_runs: int = _PLAN["warmup_runs"]
    min_repeats: int = _PLAN["min_repeats"]
    max_repeats: int = _PLAN["max_repeats"]
    min_time_s: float = _PLAN["min_time_s"]
    max_time_s: float = _PLAN["max_time_s"]
    min_sample_s: float = _PLAN["min_sample_s"]
    idle_s: float = _PLAN["idle_s"]
    energy: bool = _PLAN["energy"]
    energy_s: float = _PLAN["energy_s"]
    energy_updates: int = _PLAN["energy_updates"]
    energy_most_s: float = _PLAN["energy_most_s"]
    trials: int = _PLAN["trials"]
    cool_c: float = _PLAN["cool_c"]
    cool_s: float = _PLAN["cool_s"]
    retries: int = _PLAN["retries"]
    start_c: float = _PLAN["start_c"]


class KernelPlan(NamedTuple):
    """How often to call a single kernel. A search times thousands, so that it retries and cools less.

    Attributes:
        repeat: samples.
        number: calls in a sample, at least.
        min_repeat_ms: length of a sample, at least, in milliseconds.
        max_s: stop early; one sample is always taken.
        flush_bytes: cache to clear before each sample, which is one call then.
        retries: how often a measurement in which the board throttled is made again, after cooling.
        cool_s: longest time to cool for that.
        energy: whether to measure the energy of a call too, in windows of `KERNEL_ENERGY`.
        seed: of arguments that are made on the device.
    """

    repeat: int = _KERNEL["repeat"]
    number: int = _KERNEL["number"]
    min_repeat_ms: float = _KERNEL["min_repeat_ms"]
    max_s: float = _KERNEL["max_s"]
    flush_bytes: int = _KERNEL["flush_bytes"]
    retries: int = _KERNEL["retries"]
    cool_s: float = _KERNEL["cool_s"]
    energy: bool = _KERNEL["energy"]
    seed: int = _KERNEL["seed"]


# The windows of energy of a single kernel, which is called in a loop. They are short, because a search takes
# them of many programs: two windows of ten readings say as much as one of twenty, and how far they differ.
KERNEL_ENERGY = Plan(**_DATA["kernel_energy"])


class VariantPlan(NamedTuple):
    """How often to run the variants of a model, which take turns.

    Attributes:
        runs: rounds; each variant runs once in a round.
        max_s: begin no further round so long after the first one; one round is always completed.
        slowest: a variant is dropped whose first run takes more than so many times that of the first variant.
        retries: how often a measurement in which the board throttled is made again, after cooling.
        cool_s: longest time to cool for that.
        seed: of the order within the rounds.
    """

    runs: int = _VARIANT["runs"]
    max_s: float = _VARIANT["max_s"]
    slowest: float = _VARIANT["slowest"]
    retries: int = _VARIANT["retries"]
    cool_s: float = _VARIANT["cool_s"]
    seed: int = _VARIANT["seed"]


class Measuring(NamedTuple):
    """Constants of measuring.

    Attributes:
        stable_runs: in each of the two halves of the latest runs that a warm-up compares.
        stable_within: share by which the median of the later half may be below that of the earlier one.
        longest_warmup: where the times still fall, warm-up goes on up to so many times `warmup_s`.
        profile_runs: inferences that a profile averages over.
        random_elements: length of the pattern of random numbers that a tensor is filled with.
        least_s: the least time that a run counts as; a clock does not resolve less.
        batch_s: calls of a kernel are made together until they take so long, while its energy is measured.
    """

    stable_runs: int
    stable_within: float
    longest_warmup: float
    profile_runs: int
    random_elements: int
    least_s: float
    batch_s: float


MEASURING = Measuring(**_DATA["constants"])
