"""Measured figures as plain data: what manifest, JSON and report show alike."""

from __future__ import annotations

import math
from typing import Any

from host.deployment.result import Contender, LengthFigures, TaskOutcome, Verification
from host.model import Energy, Measurement


def latency_ms(measurement: Measurement) -> dict[str, float | int]:
    """Median, 10th and 90th percentile in milliseconds, and the number of samples."""
    return {
        "median": measurement.median_s * 1e3,
        "p10": measurement.p10_s * 1e3,
        "p90": measurement.p90_s * 1e3,
        "n": measurement.n,
    }


def energy_mj(energy: Energy) -> dict[str, Any]:
    """Millijoules of one run, with how they were found; the value is None where there is none."""
    return {
        "value": None if energy.gross_j is None else energy.gross_j * 1e3,
        "above_idle": None if energy.above_idle_j is None else energy.above_idle_j * 1e3,
        "kind": energy.kind,
        "source": energy.source,
        "boundary": energy.boundary,
    }


def verify(verification: Verification) -> dict[str, Any]:
    """The verdict; an infinite error is None, which JSON can say."""
    error = verification.max_rel_err
    return {
        "max_rel_err": error if math.isfinite(error) else None,
        "tolerance": verification.tolerance,
        "passed": verification.passed,
        "message": verification.message,
    }


def contender(one: Contender) -> dict[str, Any]:
    """All that is known of one engine in the comparison."""
    figures: dict[str, Any] = {"engine": one.engine}
    if one.measurement is not None:
        figures["latency_ms"] = latency_ms(one.measurement)
        figures["energy_mj"] = energy_mj(one.measurement.energy)
    if one.verification is not None:
        figures["verify"] = verify(one.verification)
    if one.reason:
        figures["reason"] = one.reason
    return figures


def at_length(one: LengthFigures) -> dict[str, Any]:
    """The comparison at one length of a range."""
    return {
        "length": one.length,
        "latency_ms": {name: latency_ms(measurement) for name, measurement in one.measurements.items()},
        "ratios": {
            name: dict(zip(("value", "low", "high"), ratio, strict=True))
            for name, ratio in one.ratios.items()
        },
    }


def task(outcome: TaskOutcome) -> dict[str, Any]:
    """One task, with who made its kernel."""
    return {
        "name": outcome.name,
        "weight": outcome.weight,
        "source": outcome.source,
        "latency_us": outcome.latency_us,
        "rule": outcome.rule,
        "flops": outcome.flops,
        "from_database": outcome.from_database,
        "programs": outcome.programs,
        "reason": outcome.reason,
        "workload_hash": outcome.workload_hash,
    }
