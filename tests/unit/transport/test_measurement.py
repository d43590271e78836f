"""What an agent says of a measurement, as the host keeps it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from device_agent.measure import energy
from host.errors import MeasureError
from host.model import Energy
from host.transport.replies import energy_of, measurement_of

STATES: dict[str, Any] = {"state_before": {"load_1min": 0.5}, "state_after": {}, "threads": 2}
WATTS = [(index * 0.1, 5.0 + index % 2) for index in range(200)]
DESCRIPTION = {
    "source": "ina3221",
    "kind": "measured",
    "rails": ["VDD_IN"],
    "boundary": "module",
    "accuracy": "1 %",
}


def agents_record(idle: energy.Idle | None) -> dict[str, Any]:
    """The record that the agent makes of two windows."""
    readings = energy.Readings(None, WATTS, [5.05], [])
    trials = [readings.trial(start, start + 8.0, 40, [(0.0, 41.0)]) for start in (1.0, 10.0)]
    return energy.record(DESCRIPTION, trials, idle)


def test_every_field_of_the_record_arrives() -> None:
    record = agents_record(energy.Idle(2.0, 0.05))
    found = energy_of(record)
    for field in fields(Energy):
        assert field.name == "reason" or field.name in record, f"the agent does not say {field.name}"
    assert found.kind == "measured" and found.source == "ina3221 (VDD_IN)" and found.rails == ("VDD_IN",)
    assert found.mean_w == pytest.approx(5.5, rel=0.02) and found.peak_w == 6.0
    assert (found.idle_w, found.idle_std_w, found.trials, found.n_inferences) == (2.0, 0.05, 2, 80)
    assert found.n_dropped == 1 and found.n_samples == len(
        [t for t, _ in WATTS if 1 <= t <= 9 or 10 <= t <= 18]
    )
    assert found.gross_j == pytest.approx(5.5 * 16 / 80, rel=0.02)
    assert found.above_idle_j == pytest.approx(3.5 * 16 / 80, rel=0.02)
    assert found.std_j is not None and found.duration_s == pytest.approx(16.0)
    assert found.trace[0][2] == 41.0 and len(found.trace[0]) == 3


def test_what_the_agent_does_not_know_is_none_and_never_zero() -> None:
    numbers = ("gross_j", "above_idle_j", "mean_w", "peak_w", "idle_w", "std_j", "trials", "n_samples")
    for record in ({}, energy.unavailable("no sensor here")):
        found = energy_of(record)
        assert found.kind == "unavailable" and all(getattr(found, name) is None for name in numbers)
    assert energy_of(energy.unavailable("no sensor here")).reason == "no sensor here"
    assert energy_of(agents_record(None)).reason == "no idle power was taken"


def test_throttling_and_conditions_arrive() -> None:
    said = {"throttled": True, "throttle_reasons": ["frequency capped"], "invalid": "under-voltage"}
    found = measurement_of({"times_s": [0.1, 0.2], **STATES, **said, "conditions": {"retries": 2}})
    assert found.throttled and not found.trusted and found.invalid == "under-voltage"
    assert found.throttle_reasons == ("frequency capped",) and found.conditions == {"retries": 2}
    # Executors of before say nothing of it.
    plain = measurement_of({"times_s": [0.1], **STATES})
    assert plain.trusted and plain.conditions == {} and plain.energy.kind == "unavailable"
    for times in ([], [0.0], [0.1, -0.1], [1e-12], [1e5], [float("inf")], [float("nan")]):
        with pytest.raises(MeasureError, match="no usable time"):
            measurement_of({"times_s": times, **STATES})
