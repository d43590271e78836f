"""Comparison of two results: what became better or worse beyond noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from host.statistics import Estimate, Spread, ratio_of, spread_from, spread_of
from host.table import Table, Tabular
from sdk.report.sides import EnergySide, Side

COMPARE_SCHEMA = "edgetlm.compare/1"
BETTER, WORSE, SAME, UNJUDGED = "better", "worse", "same", "not judged"

# Changes below these are no changes: a linker's padding, the order of a sum in units of what is allowed, and
# the share of the time by which two timings of single kernels differ.
_BYTES_NOISE = 0.005
_ERROR_NOISE = 0.01
_SHARE_NOISE = 0.01
# By how much a peer of the same version differs at most between two states of a machine.
_LARGEST_DRIFT = 3.0
_OTHER_MODEL = "the results are of different models"


@dataclass(frozen=True)
class Change:
    """One figure on both sides.

    Attributes:
        metric: "latency", "energy", "memory", "accuracy error", "fallback share" or "instructions".
        unit: of `before` and `after`.
        before, after: the figures; None if a side has none.
        ratio: after over before with its 95% bounds; None if there is none.
        verdict: "better", "worse", "same" (no difference beyond noise and tolerance) or "not judged". A
            latency is judged relative to an engine that was measured beside both, if there is one.
        remark: how the figure was judged, or why it was not.
        judged: the ratio that was judged where it is not `ratio`: that of the times relative to a peer.
    """

    metric: str
    unit: str
    before: float | None
    after: float | None
    ratio: Estimate | None
    verdict: str
    remark: str = ""
    judged: Estimate | None = None


@dataclass(frozen=True)
class Comparison(Tabular):
    """Two results side by side.

    Attributes:
        before, after: the sides.
        tolerance: share by which a figure may get worse.
        changes: by figure.
        remarks: other differences between the two.
    """

    before: Side
    after: Side
    tolerance: float
    changes: tuple[Change, ...]
    remarks: tuple[str, ...]

    @property
    def regressions(self) -> tuple[Change, ...]:
        """The figures that became worse."""
        return tuple(change for change in self.changes if change.verdict == WORSE)

    def tables(self) -> tuple[Table, ...]:
        """The figures of both sides."""
        return (
            Table(
                "changes",
                f"{len(self.regressions)} of {len(self.changes)} figures got worse",
                ("figure", "unit", "before", "after", "after_over_before", "verdict", "remark"),
                tuple(
                    (
                        one.metric,
                        one.unit,
                        one.before,
                        one.after,
                        None if one.ratio is None else one.ratio.value,
                        one.verdict,
                        one.remark,
                    )
                    for one in self.changes
                ),
            ),
        )


def compare(before: Side, after: Side, tolerance: float = 0.0) -> Comparison:
    """Compare two results.

    Args:
        before: the reference.
        after: the result that is judged.
        tolerance: share by which a figure may get worse, beyond noise (0.05 is 5%).
    """
    changes = [_latency(before, after, tolerance), _energy(before, after, tolerance)]
    if before.instructions and after.instructions:
        changes.append(_counted(before, after, tolerance))
    changes += [_memory(before, after, tolerance), _error(before, after, tolerance)]
    changes.append(_fallback(before, after, tolerance))
    if before.name != after.name:
        changes = [replace(one, verdict=UNJUDGED, remark=_OTHER_MODEL) for one in changes]
    return Comparison(before, after, tolerance, tuple(changes), _remarks(before, after))


def _latency(before: Side, after: Side, tolerance: float) -> Change:
    figures = spread_of(before.own.rounds_ms), spread_of(after.own.rounds_ms)
    whole = ("latency", "ms", figures[0].value, figures[1].value)
    for timing in (before.timing, after.timing):
        if not timing.decides:
            return Change(*whole, None, UNJUDGED, f"{timing.source}'s time says nothing of a board")
    if before.timing.compares != after.timing.compares:
        return Change(*whole, None, UNJUDGED, "one is a simulation's time, the other a board's")
    slowed = _throttled(before, after)
    if slowed:
        return Change(*whole, ratio_of(figures[1], figures[0]), UNJUDGED, slowed)
    control = common_peer(before, after)
    if control is None:
        ratio = ratio_of(figures[1], figures[0])
        return Change(
            *whole,
            ratio,
            _verdict(ratio, tolerance),
            "no engine was measured beside both: the machine may have changed",
        )
    relative = [_paired(side.own.rounds_ms, side.peers[control].rounds_ms) for side in (before, after)]
    judged = ratio_of(relative[1], relative[0])
    peers = [spread_of(side.peers[control].rounds_ms) for side in (before, after)]
    moved = ratio_of(peers[1], peers[0]).value
    ratio = ratio_of(figures[1], figures[0])
    if not 1.0 / _LARGEST_DRIFT < moved < _LARGEST_DRIFT:
        remark = (
            f"{control} itself took {moved:.3g} times as long: another model, or another state of the machine"
        )
        return Change(*whole, ratio, UNJUDGED, remark)
    remark = f"relative to {control}, which itself took {moved:.2f} times as long, {judged.value:.3f}"
    return Change(*whole, ratio, _verdict(judged, tolerance), remark, judged)


def common_peer(before: Side, after: Side) -> str | None:
    """An engine of the same version that was measured in turn with the model on both sides.

    The two are then compared by their ratios to it, in which the state of the machine cancels.
    """
    for name, one in sorted(before.peers.items()):
        other = after.peers.get(name)
        if other is None or one.throttled or other.throttled:
            continue
        pairs = ((one, before.own), (other, after.own))
        alike = all(len(peer.rounds_ms) == len(own.rounds_ms) for peer, own in pairs)
        same_machine = before.cpu == after.cpu and before.threads == after.threads
        if alike and same_machine and before.versions.get(name) == after.versions.get(name):
            return name
    return None


def _paired(own: Sequence[float], peer: Sequence[float]) -> Spread:
    return spread_of([a / b for a, b in zip(own, peer, strict=True)])


def _energy(before: Side, after: Side, tolerance: float) -> Change:
    a, b = before.own.energy, after.own.energy
    whole = ("energy", "mJ", a.value_mj, b.value_mj)
    refusal = incomparable(a, b) or _throttled(before, after)
    if refusal:
        return Change(*whole, None, UNJUDGED, refusal)
    ratio = ratio_of(_joules(b), _joules(a))
    if not ratio.bounded:
        return Change(*whole, ratio, UNJUDGED, "too few windows for a bound: --objective energy takes more")
    return Change(*whole, ratio, _verdict(ratio, tolerance), f"boundary {a.boundary or 'unknown'}")


def incomparable(a: EnergySide, b: EnergySide) -> str:
    """Why two energies must not be compared; "" if they may."""
    for one in (a, b):
        if not one.value_mj:
            return f"unavailable: {one.reason}"
    if a.kind != b.kind:
        return f"one is {a.kind}, the other {b.kind}"
    if a.boundary != b.boundary:
        return f"of different boundaries: {a.boundary or 'unknown'} and {b.boundary or 'unknown'}"
    if a.rails != b.rails:
        return f"of different rails: {', '.join(a.rails) or 'none'} and {', '.join(b.rails) or 'none'}"
    return ""


def _joules(energy: EnergySide) -> Spread:
    # Of several windows the spread between them, which holds what the agent's own trials do not see.
    if len(energy.windows_mj) > 1:
        return spread_of(energy.windows_mj)
    assert energy.value_mj is not None
    return spread_from(energy.value_mj, energy.std_mj, energy.trials)


def _throttled(before: Side, after: Side) -> str:
    slowed = [side.source for side in (before, after) if side.own.throttled]
    return f"the board throttled in {' and in '.join(slowed)}" if slowed else ""


def _verdict(ratio: Estimate, tolerance: float) -> str:
    if ratio.low is None or ratio.high is None:
        return UNJUDGED
    if ratio.low > 1.0 + tolerance:
        return WORSE
    return BETTER if ratio.high < 1.0 else SAME


def _exact(before: float, after: float, noise: float, tolerance: float) -> str:
    """The verdict on figures without noise."""
    if after > before * (1.0 + tolerance) and after - before > noise:
        return WORSE
    return BETTER if before - after > noise else SAME


def _counted(before: Side, after: Side, tolerance: float) -> Change:
    a, b = before.instructions, after.instructions
    assert a is not None and b is not None
    verdict = _exact(a, b, 0.001 * a, tolerance)
    return Change("instructions", "", a, b, Estimate(b / a), verdict, "counted, not timed")


def _memory(before: Side, after: Side, tolerance: float) -> Change:
    a, b = before.bundle_bytes, after.bundle_bytes
    if not a or not b:
        return Change("memory", "MB", _mega(a), _mega(b), None, UNJUDGED, "not known on both sides")
    verdict = _exact(a, b, _BYTES_NOISE * a, tolerance)
    return Change("memory", "MB", _mega(a), _mega(b), Estimate(b / a), verdict, "library and parameters")


def _mega(size: int | None) -> float | None:
    return None if size is None else size / 1e6


def _error(before: Side, after: Side, tolerance: float) -> Change:
    a, b, allowed = before.own.error, after.own.error, after.own.tolerance
    if a is None or b is None or allowed is None:
        return Change("accuracy error", "", a, b, None, UNJUDGED, "not verified on both sides")
    verdict = _exact(a, b, _ERROR_NOISE * allowed, tolerance)
    ratio = Estimate(b / a) if a > 0 else None
    return Change("accuracy error", "", a, b, ratio, verdict, f"allowed is {allowed:.0e}")


def _fallback(before: Side, after: Side, tolerance: float) -> Change:
    a, b = before.default_share, after.default_share
    if before.backend != after.backend:
        remark = f"the backend went from {before.backend} to {after.backend}"
        verdict = WORSE if before.backend == "tvm" else BETTER if after.backend == "tvm" else SAME
        return Change("fallback share", "%", _percent(a), _percent(b), None, verdict, remark)
    if a is None or b is None:
        return Change("fallback share", "%", None, None, None, UNJUDGED, "no compiled kernels on both sides")
    verdict = WORSE if b - a > max(_SHARE_NOISE, tolerance) else BETTER if a - b > _SHARE_NOISE else SAME
    remark = "time in kernels on a default schedule"
    return Change("fallback share", "%", _percent(a), _percent(b), None, verdict, remark)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100.0 * share


def _remarks(before: Side, after: Side) -> tuple[str, ...]:
    found = []
    for what, a, b in (
        ("models", before.name, after.name),
        ("devices", before.device, after.device),
        ("processors", before.cpu, after.cpu),
        ("numbers of threads", str(before.threads), str(after.threads)),
    ):
        if a != b and a and b:
            found.append(f"different {what}: {a} and {b}")
    return tuple(found)


def compare_json(comparison: Comparison) -> dict[str, Any]:
    """The JSON of `sdk report compare`."""
    return {
        "schema": COMPARE_SCHEMA,
        "before": comparison.before.source,
        "after": comparison.after.source,
        "tolerance": comparison.tolerance,
        "regression": bool(comparison.regressions),
        "changes": [
            {
                "metric": one.metric,
                "unit": one.unit,
                "before": one.before,
                "after": one.after,
                "ratio": _ratio_json(one.ratio),
                "judged": _ratio_json(one.judged),
                "verdict": one.verdict,
                "remark": one.remark,
            }
            for one in comparison.changes
        ],
        "remarks": list(comparison.remarks),
    }


def _ratio_json(ratio: Estimate | None) -> dict[str, float | None] | None:
    return None if ratio is None else {"value": ratio.value, "low": ratio.low, "high": ratio.high}
