"""Measured figures as plain data: what manifest, JSON and report show alike."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from host.deployment.result import Contender, LengthFigures, TaskOutcome, Verification
from host.model import Energy, Measurement

if TYPE_CHECKING:
    from host.tuning.result import TuneResult


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


def tuning(result: TuneResult) -> dict[str, Any]:
    """What measuring kernels found out: who won what, and the curve of the model's time."""
    return {
        "trials": result.trials,
        "measured_now": result.measured_now,
        "stopped": result.stopped,
        "seconds": result.seconds,
        "model_ms": {"first": result.first_model_s * 1e3, "best": result.model_s * 1e3},
        "curve": [{"trials": trials, "model_ms": seconds * 1e3} for trials, seconds in result.curve],
        "proposers": {
            one.name: {
                "tasks_won": one.tasks_won,
                "time_won": one.time_won,
                "trials": one.trials,
                "wins": one.wins,
                "failed": one.failed,
            }
            for one in result.proposers
        },
        "shares": [dict(batch) for batch in result.shares],
        "tasks": [
            {
                "name": one.name,
                "workload_hash": one.workload_hash,
                "weight": one.weight,
                "trials": one.trials,
                "failed": one.failed,
                "first_us": None if one.first_s is None else one.first_s * 1e6,
                "best_us": None if one.best_s is None else one.best_s * 1e6,
                "source": None if one.best is None else one.best.proposer,
            }
            for one in result.tasks
        ],
        "skipped": dict(result.skipped),
        "trainings": [
            {
                "accepted": one.proposer is not None,
                "before": one.before,
                "after": one.after,
                "seconds": one.seconds,
                "digest": one.digest,
            }
            for one in result.trainings
        ],
    }
