"""What `sdk explain` says of a board's measurements."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from host.gensor import Gensor
from host.learned_estimate.observation import Observation, values_of
from host.learned_estimate.taught import BuiltKernel, taught_about
from host.schedules import DesignSpace
from tests.unit.learned_estimate.test_estimate import drawn
from tests.unit.learned_estimate.test_evidence import observed, tall_is_slow
from tests.unit.tuning.simulated import dense_space, profile


def kernel(name: str = "mine", measured: bool = False) -> BuiltKernel:
    """A kernel with Gensor's program."""
    space = dense_space(name)
    first = Gensor().propose(space, profile(), (), 1, seed=0)[0]
    return BuiltKernel(name, 3, space, values_of(first), measured)


def test_evidence_that_convinces_changes_estimates_and_choices() -> None:
    known = [
        replace(one, made_at=f"2026-11-{day % 9 + 11}T10:00")
        for day, one in enumerate(observed(tall_is_slow))
    ]
    own, settled = kernel(), kernel("settled", measured=True)
    taught = taught_about([own, settled], known, profile(), 0)
    [evidence] = taught.evidence
    assert evidence.convinces and evidence.bound is not None and evidence.bound > 1.0
    assert (evidence.programs, evidence.models, evidence.since) == (96, 4, "2026-11-11")
    mine, other = sorted(taught.kernels, key=lambda one: one.name)
    assert mine.estimate_s == own.space.estimate_s(own.values)
    # Tall tiles are slower than estimated, and the estimate is corrected towards that.
    truth = tall_is_slow(own.space, dict(own.values))
    assert abs(math.log(mine.learned_s / truth)) < abs(math.log(mine.estimate_s / truth))
    changed = {name: after for name, _, after in mine.changed}
    assert tall_is_slow(own.space, {**own.values, **changed}) < 0.9 * truth
    assert mine.gain > 1.0 and mine.choice.count(" to ") == len(changed)
    assert other.changed == () and other.gain == 1.0, "what was measured keeps its program"


def test_doubtful_evidence_changes_no_choice() -> None:
    generator = random.Random(1)

    def luck(space: DesignSpace, values: dict[str, int]) -> float:
        return space.estimate_s(values) * generator.lognormvariate(0.0, 0.2)

    taught = taught_about([kernel()], observed(luck), profile(), 0)
    assert [one.convinces for one in taught.evidence] == [False]
    assert [one.changed for one in taught.kernels] == [()]
    rules, kernels, _ = taught.tables()
    [row] = [dict(zip(rules.columns, row, strict=True)) for row in rules.rows]
    assert (row["rule"], row["programs"], row["used"]) == ("tiled", 96, False)
    [row] = [dict(zip(kernels.columns, row, strict=True)) for row in kernels.rows]
    assert row["kernel"] == "mine" and row["choice"] is None
    assert row["learned_us"] == pytest.approx(1e6 * taught.kernels[0].learned_s)


def test_other_rules_say_nothing() -> None:
    space = dense_space("other")
    known = [
        replace(Observation.of(space, values, 1.0), rule="rowwise") for values in drawn(space, 8, seed=0)
    ]
    assert taught_about([kernel()], known, profile(), 0).kernels == ()
