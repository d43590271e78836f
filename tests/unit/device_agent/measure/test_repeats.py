"""When warm-up ends and how many samples are taken: the vectors that the native executor runs too."""

from __future__ import annotations

import itertools

import pytest

from device_agent.execute.kernels import kernel_plan_of
from device_agent.measure.measurement import plan_of
from device_agent.measure.repeats import (
    WarmUp,
    calls_together,
    enough_samples,
    is_falling,
    kernel_counts,
    medians,
)
from tests.vectors import vectors


def warm_up(case):
    runs, spent_s = WarmUp(plan_of(case["plan"])), 0.0
    for count, run_s in enumerate(case["runs_s"], 1):
        spent_s += run_s
        if runs.add(run_s, spent_s):
            return {"runs": count, "runs_per_sample": runs.runs_per_sample}
    return {"runs": None}


def stability(case):
    found = medians(case["runs_s"])
    return {"medians_s": list(found) if found else None, "falling": is_falling(case["runs_s"])}


def window(case):
    for count, spent_s in enumerate(itertools.accumulate(case["samples_s"]), 1):
        if enough_samples(plan_of(case["plan"]), count, spent_s, case["window_s"]):
            return {"samples": count}
    return {"samples": None}


def kernel(case):
    return kernel_counts(kernel_plan_of(case["plan"]), case["first_s"], case["once_s"])._asdict()


def together(case):
    return {"together": calls_together(case["once_s"])}


DECISIONS = {
    "warm_up": warm_up,
    "stability": stability,
    "window": window,
    "kernel": kernel,
    "together": together,
}


@pytest.mark.parametrize("case", vectors("measuring"), ids=lambda case: f"{case['decision']}: {case['name']}")
def test_decisions_are_those_of_the_vectors(case):
    assert DECISIONS[case["decision"]](case) == case["expected"]


def test_a_text_is_neither_true_nor_false():
    assert kernel_plan_of({"energy": True}).energy is True and kernel_plan_of({"energy": 0}).energy is False
    with pytest.raises(ValueError):
        kernel_plan_of({"energy": "false"})
