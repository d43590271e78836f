"""Gates: limits of a deployment, judged by its figures before anything is installed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from host.deploy.result import DeployResult
    from host.options import DeployOptions


@dataclass(frozen=True)
class Gate:
    """A limit and what was found.

    Attributes:
        name: of the option that sets it, such as "max-latency-ms".
        limit: in the unit of the name; bytes for "max-bundle".
        value: what counts against it, in the same unit; None if it cannot be known.
        passed: whether it is met. What cannot be known meets no limit.
        text: the figure for people, or why it cannot be known.
    """

    name: str
    limit: float
    value: float | None
    passed: bool
    text: str


def judged(options: DeployOptions, result: DeployResult) -> tuple[Gate, ...]:
    """The gates that the options set, each with its verdict.

    Args:
        options: with the limits.
        result: with the figures. Of a range of lengths, the latency and the energy are those of the greatest
            length, and the speed-up is the geometric mean.
    """
    return tuple(_gates(options, result))


def _gates(options: DeployOptions, result: DeployResult) -> Iterator[Gate]:
    if options.min_speedup is not None:
        value, text = _speedup(result)
        met = value is not None and value >= options.min_speedup
        yield Gate("min-speedup", options.min_speedup, value, met, text)
    measurement = result.measurement
    if options.max_latency_ms is not None:
        median = measurement.median_s * 1e3
        if unknown := result.timing.why_unknown(result.device):
            yield _unknown("max-latency-ms", options.max_latency_ms, f"times {unknown}")
        else:
            yield _at_most("max-latency-ms", options.max_latency_ms, median, f"the median is {median:.4g} ms")
    if options.max_energy_mj is not None:
        joules = measurement.energy.gross_j
        if joules is None:
            reason = f"energy is unavailable ({measurement.energy.reason or measurement.energy.source})"
            yield _unknown("max-energy-mj", options.max_energy_mj, reason)
        else:
            text = f"a run takes {joules * 1e3:.4g} mJ ({measurement.energy.kind})"
            yield _at_most("max-energy-mj", options.max_energy_mj, joules * 1e3, text)
    if options.max_error is not None:
        error = result.verification.max_rel_err
        yield _at_most("max-error", options.max_error, error, f"the largest relative error is {error:.2g}")
    if options.max_bundle_bytes:
        size, limit = result.bundle_bytes, float(options.max_bundle_bytes)
        yield _at_most("max-bundle", limit, float(size), f"the device runs {size} bytes")


def _at_most(name: str, limit: float, value: float, text: str) -> Gate:
    return Gate(name, limit, value, value <= limit, text)


def _unknown(name: str, limit: float, reason: str) -> Gate:
    return Gate(name, limit, None, False, reason)


def _speedup(result: DeployResult) -> tuple[float | None, str]:
    """The lower 95% bound of the fastest peer's time over ours, and the figure for people.

    Of a language model, that of decoding.
    """
    if unknown := result.timing.why_unknown(result.device):
        return None, f"times {unknown}"
    if result.choice.backend != "tvm":
        return None, f"{result.choice.backend} was taken: {result.choice.why}"
    if result.beside is not None:
        best = result.beside.best_peer("decode")
        ratio = best.speedup["decode"]
        if ratio.low is None or ratio.high is None:
            return None, f"{best.engine} takes {ratio.value:.2f} times as long, of too few rounds"
        bounds = f"{ratio.low:.2f} to {ratio.high:.2f}"
        return ratio.low, f"{best.engine} takes {ratio.value:.2f} ({bounds}) times as long in decoding"
    if not result.ratios:
        return None, "no other engine was measured"
    name, (value, low, high) = min(result.ratios.items(), key=lambda one: one[1][0])
    return low, f"{name} takes {value:.2f} ({low:.2f} to {high:.2f}) times as long"
