"""Measured figures as plain data, for manifest, JSON and report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from host.compare.comparison import LengthFigures
from host.compare.entrants import EntrantResult
from host.compare.verification import Verification
from host.compile.task_outcome import TaskOutcome
from host.model import Energy, Measurement, Start

if TYPE_CHECKING:
    from host.compare.entrants import EntrantResult
    from host.compare.pareto import ParetoFront
    from host.compare.selection import VariantSelection
    from host.compile.explanation import Explanation
    from host.deploy.gates import Gate
    from host.model.quantisation import OutputError, Quantisation
    from host.model.text_comparison import EngineTexts, TextComparison
    from host.model.text_quality import TextQuality
    from host.model.text_speed import TextSpeed
    from host.statistics import Estimate
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
    """Millijoules of one run, with their source; the value is None if energy is unavailable."""
    return {
        "value": _milli(energy.gross_j),
        "above_idle": _milli(energy.above_idle_j),
        "kind": energy.kind,
        "source": energy.source,
        "boundary": energy.boundary,
        "rails": list(energy.rails),
        "reason": energy.reason,
        "std": _milli(energy.std_j),
        "trials": energy.trials,
        "watts": {
            "mean": energy.mean_w,
            "peak": energy.peak_w,
            "idle": energy.idle_w,
            "idle_std": energy.idle_std_w,
        },
        "n_inferences": energy.n_inferences,
        "n_samples": energy.n_samples,
        "n_dropped": energy.n_dropped,
        "duration_s": energy.duration_s,
        "accuracy": energy.accuracy,
    }


def samples(rounds_s: Sequence[float], windows: Sequence[Measurement]) -> dict[str, Any]:
    """The repetitions that bounds are computed from: medians of rounds, and joules of a run by window."""
    joules = [window.energy.gross_j for window in windows]
    known = [value * 1e3 for value in joules if value is not None]
    return {
        "rounds_ms": [seconds * 1e3 for seconds in rounds_s],
        "windows_mj": known if len(known) == len(joules) else [],
    }


def _milli(value: float | None) -> float | None:
    return None if value is None else value * 1e3


def verify(verification: Verification) -> dict[str, Any]:
    """The verdict as JSON fields; an infinite error, which JSON cannot express, is None."""
    error = verification.max_rel_err
    return {
        "max_rel_err": error if math.isfinite(error) else None,
        "tolerance": verification.tolerance,
        "passed": verification.passed,
        "message": verification.message,
        "remark": verification.remark,
    }


def contender(one: EntrantResult) -> dict[str, Any]:
    """The figures of one engine in the comparison."""
    figures: dict[str, Any] = {"engine": one.name}
    if one.measurement is not None:
        figures["latency_ms"] = latency_ms(one.measurement)
        figures["energy_mj"] = energy_mj(one.measurement.energy)
        figures["throttled"] = not one.measurement.trusted
        figures["instructions"] = one.measurement.instructions
        figures["samples"] = samples(one.rounds_s, one.windows)
    if one.verification is not None:
        figures["verify"] = verify(one.verification)
    if one.start is not None:
        figures["start"] = start(one.start)
    if one.reason:
        figures["reason"] = one.reason
    return figures


def start(one: Start) -> dict[str, float]:
    """Seconds to the first output, and of what."""
    return {
        "load_s": one.load_s,
        "first_run_s": one.first_run_s,
        "first_output_s": one.first_output_s,
    }


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
    """One task and the proposer of its kernel."""
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
        "layers": [asdict(layer) for layer in outcome.layers],
        "processor": outcome.processor,
        "copied_bytes": outcome.copied_bytes,
    }


def roofline(explained: Sequence[Explanation]) -> dict[str, Any] | None:
    """The limits of the processor and the kernels under them; None where no kernel was explained."""
    if not explained:
        return None
    limits = explained[0].roofline
    return {
        "source": limits.source,
        "threads": limits.threads,
        "peak_flops": limits.peak_flops,
        "bytes_per_s": limits.bandwidths,
        "kernels": [
            {
                "name": one.kernel.name,
                "flops": one.roofline.flops,
                "bytes": dict(one.roofline.bytes_moved),
                "flops_per_byte": one.roofline.intensity,
                "estimate_us": _micro(one.roofline.estimate_s),
                "measured_us": _micro(one.roofline.measured_s),
            }
            for one in explained
        ],
    }


def _micro(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e6


def gate(one: Gate) -> dict[str, Any]:
    """One gate and its verdict as JSON fields; an infinite value, which JSON cannot express, is None."""
    known = one.value is not None and math.isfinite(one.value)
    return {
        "name": one.name,
        "limit": one.limit,
        "value": one.value if known else None,
        "passed": one.passed,
        "text": one.text,
    }


def output_error(one: OutputError) -> dict[str, Any]:
    """How far an output of a quantised model is off; what is infinite or not known is None."""
    found = {
        "name": one.name,
        "rms": one.rms,
        "largest": one.largest,
        "snr_db": one.snr_db,
        "cosine": one.cosine,
        "agreement": one.agreement,
    }
    return {key: _finite(value) for key, value in found.items()}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def quantisation(one: Quantisation) -> dict[str, Any]:
    """How a model was quantised, layer by layer, and the front of error and layers in floats."""
    return {
        "activations": one.dtype,
        "weights": "int8",
        "samples": one.samples,
        "compared": one.compared,
        "bound": one.bound,
        "errors": [output_error(error) for error in one.errors],
        "fully_quantised": [output_error(error) for error in one.fully],
        "group": one.group,
        "layers": [
            {
                "name": layer.name,
                "operator": layer.operator,
                "multiply_adds": layer.multiply_adds,
                "weights": layer.weights,
                "alone_rms": _finite(layer.alone),
                "quantised": layer.quantised,
            }
            for layer in one.layers
        ],
        "front": [
            {
                "kept": point.kept,
                "float_share": point.wide_share,
                "rms": _finite(point.error),
                "taken": point.taken,
            }
            for point in one.front
        ],
    }


def text_quality(one: TextQuality) -> dict[str, Any]:
    """How well a language model continues a text; divergences are in nats a token, infinity is None."""
    found = {
        "tokens": one.tokens,
        "baseline": one.baseline,
        "perplexity": one.perplexity,
        "baseline_perplexity": one.baseline_perplexity,
        "kl_divergence": one.divergence,
        "weights_kl_divergence": one.weights_divergence,
        "same_likeliest": one.agreement,
        "greedy": {"tokens": one.greedy_tokens, "equal": one.greedy_equal},
    }
    return {key: _finite(value) for key, value in found.items()}


def text_speed(one: TextSpeed) -> dict[str, Any]:
    """How fast a language model reads a prompt and writes a text."""
    return {
        "decode": [
            {"behind": step.behind, "tokens_s": 1.0 / step.seconds, "joules_a_token": step.joules}
            for step in one.steps
        ],
        "prefill": {"tokens": one.prompt_tokens, "tokens_s": one.prompt_tokens_s},
        "first_token_s": one.prompt_s,
        "step_bytes": one.step_bytes,
        "read_bytes_s": one.read_bytes_s,
        "bandwidth_share": one.bandwidth_share,
    }


def text_comparison(one: TextComparison) -> dict[str, Any]:
    """A language model beside other engines: ours first."""
    return {
        "engines": [_engine_texts(engine) for engine in (one.ours, *one.peers)],
        "tokens": dict(one.tokens),
        "behind": dict(one.behind),
        "rounds": one.rounds,
        "missing": dict(one.missing),
    }


def _engine_texts(one: EngineTexts) -> dict[str, Any]:
    return {
        "engine": one.engine,
        "version": one.version,
        "tokens_s": dict(one.tokens_s),
        "speedup": {kind: estimate(ratio) for kind, ratio in one.speedup.items()},
        "peak_memory_mb": one.peak_memory_bytes / 1e6,
        "first_token_s": one.first_token_s,
        "kl_divergence": one.divergence,
    }


def estimate(one: Estimate | None, factor: float = 1.0) -> dict[str, Any] | None:
    """A figure with its 95% bounds, which are None where there are too few repetitions."""
    if one is None:
        return None
    scaled = one.scaled(factor)
    return {"value": scaled.value, "low": scaled.low, "high": scaled.high, "n": scaled.n}


def power_point(point: EntrantResult, front: ParetoFront) -> dict[str, Any]:
    """The figures of one variant in one power mode, as JSON fields."""
    return {
        "name": point.title,
        "variant": point.name,
        "threads": point.threads,
        "mode": point.mode,
        "candidate": point.deployable,
        "latency_ms": estimate(point.latency_s, 1e3),
        "gross_mj": estimate(point.gross_j, 1e3),
        "net_mj": estimate(point.net_j, 1e3),
        "edp_uj_s": None if point.edp_js is None else point.edp_js * 1e6,
        "mean_w": point.mean_w,
        "kind": None if point.energy is None else point.energy.kind,
        "source": None if point.energy is None else point.energy.source,
        "boundary": None if point.energy is None else point.energy.boundary,
        "throttled": point.measurement is not None and not point.trusted,
        "samples": samples(point.rounds_s, point.windows),
        "on_front": any(one is point for one in front.front),
        "dominated_by": front.dominated.get(point.title),
        "reason": point.why_excluded,
    }


def power(result: VariantSelection) -> dict[str, Any]:
    """The measurements of the finalists: points, front, modes, and the selected variant."""
    front = result.front
    return {
        "objective": result.objective,
        "cap_w": result.cap_w,
        "home_mode": result.home,
        "taken": None if result.taken is None else result.taken.title,
        "why": result.why,
        "points": [power_point(point, front) for point in result.points],
        "front": [point.title for point in front.front],
        "no_front": front.reason,
        "gain": estimate(result.gain),
        "energy_gain": estimate(result.energy_gain),
        "modes": [
            {
                "name": mode.name,
                "kind": mode.kind,
                "current": mode.current,
                "settable": mode.settable,
                "reason": mode.reason,
            }
            for mode in result.modes
        ],
        "remarks": list(result.remarks),
        "advice": result.advice,
    }


def tuning(result: TuneResult) -> dict[str, Any]:
    """The result of a tuning: wins of each proposer, and the curve of the model's time."""
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
                "why": one.why,
                "seconds": one.seconds,
                "digest": one.digest,
            }
            for one in result.trainings
        ],
    }
