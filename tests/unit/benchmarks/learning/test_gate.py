"""The experiment about the gate of fine-tuning: what counts as true, and what is counted."""

from __future__ import annotations

import random
from dataclasses import replace

from benchmarks.gate.__main__ import figures_of, true_of
from benchmarks.gate.recorded import reversed_times, shuffled
from host.tlm.training.gate import Chosen
from tests.unit.tlm.learning import example_of


def _line(kind: str, accepted: bool, truth: str, first: float = 1.0) -> dict[str, object]:
    return {"kind": kind, "accepted": accepted, "truth": truth, "first": first, "best": 1.0}


def test_verdicts_are_counted_by_what_is_true() -> None:
    lines = [
        _line("true", True, "better", 1.21),
        _line("true", False, "better", 1.0),
        _line("true", False, "neither"),
        _line("shuffled", True, "worse"),
    ]
    found = figures_of(lines)
    assert found["true"]["trainings"] == 3 and found["true"]["accepted"] == 1
    assert found["true"]["truth"]["better"] == {"trainings": 2, "accepted": 1}
    assert found["true"]["truth"]["neither"] == {"trainings": 1, "accepted": 0}
    assert found["shuffled"]["truth"]["worse"] == {"trainings": 1, "accepted": 1}
    assert "recovered" not in found and found["all"]["trainings"] == 4
    assert 1.06 < found["true"]["first"]["value"] < 1.07


def test_a_model_is_better_or_worse_only_where_a_bound_says_so() -> None:
    slow = [Chosen(1.5, 1.1)] * 6
    fast = [Chosen(1.1 + 0.02 * number, 1.0) for number in range(6)]
    mixed = [Chosen(0.7 if number % 2 else 3.0, 1.1) for number in range(6)]
    assert true_of(slow, fast)["truth"] == "better" and true_of(slow, fast)["first"] > 1.2
    assert true_of(fast, slow)["truth"] == "worse"
    assert true_of(slow, mixed)["truth"] == "neither"
    assert true_of(slow, slow)["truth"] == "neither"


def test_times_change_hands_and_estimates_stay_with_their_programs() -> None:
    known = example_of(9, 1, 1)
    example = replace(known, estimates=tuple(float(one + 1) for one in range(len(known.programs))))
    of = {decided: one for (decided, _), one in zip(example.programs, example.estimates, strict=True)}
    for changed in (reversed_times(example), shuffled(example, random.Random(1))):
        times = [slower for _, slower in changed.programs]
        assert times == sorted(times) == sorted(slower for _, slower in example.programs)
        assert [of[decided] for decided, _ in changed.programs] == list(changed.estimates)
        assert dict(changed.programs) != dict(example.programs)
    assert reversed_times(example).programs[0][0] == example.programs[-1][0]
