"""Power in the pages: variants and modes, and the energy of each engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sdk.report.charts import Chart
from sdk.report.power_charts import (
    contender_points,
    joules_chart,
    power_charts,
    temperature_chart,
    trace_chart,
)

if TYPE_CHECKING:
    from host.compare.entrants import EntrantResult
    from host.compare.selection import VariantSelection
    from host.deploy import DeployResult
    from host.statistics import Estimate


def energy_charts(result: DeployResult) -> dict[str, Chart | None]:
    """The energy charts of a deployment, by name."""
    points = contender_points(result)
    energies = {name: joules_of(one) for name, one in result.contenders.items()}
    charts: dict[str, Chart | None] = {"energy": joules_chart(energies)}
    if result.power is not None:
        # The compiled model is among the variants already.
        peers = [point for point in points if point.name != "tvm"]
        return charts | power_charts(result.power, peers)
    windows = [(point.title, window) for point in points for window in point.windows]
    return charts | {"power": trace_chart(windows), "temperature": temperature_chart(windows)}


def joules_of(one: EntrantResult) -> Estimate | None:
    """Joules of a run of an engine, with bounds where there are enough windows; None where unavailable."""
    from host.compare.energy_windows import estimate_of_trials
    from host.statistics import MIN_TRIALS, mean_of

    joules = [window.energy.gross_j for window in one.windows]
    known = [value for value in joules if value]
    if len(known) == len(joules) >= MIN_TRIALS:
        return mean_of(known)
    return None if one.measurement is None else estimate_of_trials(one.measurement.energy)


def energy_rows(result: DeployResult) -> list[dict[str, Any]]:
    """A line for each engine: its energy, or the reason why there is none."""
    rows = []
    for name in [result.choice.backend, *result.peers]:
        one = result.contenders[name]
        estimate = joules_of(one)
        energy = None if one.measurement is None else one.measurement.energy
        reason = one.reason if energy is None else energy.reason or energy.source
        rows.append(
            {
                "engine": name,
                "energy": energy,
                "gross": None if estimate is None else estimate.scaled(1e3),
                "reason": reason,
                "throttled": one.measurement is not None and not one.measurement.trusted,
            }
        )
    return rows


def throttled(result: DeployResult) -> tuple[str, ...]:
    """Evidence that the board was slowed down during the measurements; () if there is none."""
    found: dict[str, None] = {}
    for point in (*contender_points(result), *(result.power.points if result.power is not None else ())):
        for one in (*point.windows, *([point.measurement] if point.measurement is not None else [])):
            if not one.trusted:
                found |= dict.fromkeys(one.throttle_reasons or (one.invalid or "its own flags say so",))
    return tuple(found)


def power_context(power: VariantSelection) -> dict[str, Any]:
    """The variables of the template `power_part.html.j2`."""
    modes = {point.mode for point in power.points}
    taken = power.taken.energy if power.taken is not None else None
    return {
        "power": power,
        "points": [_row(power, point) for point in power.points],
        "several_modes": len(modes) > 1,
        "measured_modes": modes,
        "boundary": "" if taken is None else taken.boundary,
    }


def _row(power: VariantSelection, point: EntrantResult) -> dict[str, Any]:
    latency, gross, net = point.latency_s, point.gross_j, point.net_j
    remarks = _remarks(power, point)
    return {
        "point": point,
        "taken": point is power.taken,
        "latency": None if latency is None else latency.scaled(1e3),
        "gross": None if gross is None else gross.scaled(1e3),
        "net": None if net is None else net.scaled(1e3),
        "remark": ", ".join(remarks),
        "bad": not point.trusted or not power.allows(point),
    }


def _remarks(power: VariantSelection, point: EntrantResult) -> Sequence[str]:
    remarks = []
    if point is power.taken:
        remarks.append("taken")
    if any(one is point for one in power.front.front):
        remarks.append("on the front")
    better = power.front.dominated.get(point.title)
    if better is not None:
        remarks.append(f"dominated by {better}")
    if point.why_no_energy:
        remarks.append(f"no energy: {point.why_no_energy}")
    if not point.deployable:
        remarks.append("for comparison")
    if point.measurement is not None and not point.trusted:
        reasons = {reason for window in point.windows for reason in window.throttle_reasons}
        remarks.append(f"throttled{': ' + ', '.join(sorted(reasons)) if reasons else ''}")
    if point.measurement is not None and not power.allows(point):
        remarks.append(f"above {power.cap_w:g} W")
    return remarks
