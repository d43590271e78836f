"""The figures of one result as a table."""

from __future__ import annotations

import statistics

from host.statistics import Estimate, paired_ratio
from host.table import Table
from sdk.report.sides import EngineSide, Side

_COLUMNS = ("figure", "unit", "value", "remark")


def table_of(side: Side) -> Table:
    """What was deployed, beside its peers: a row for each figure, without a value where it cannot be known.

    Args:
        side: as `read_side` reads it.
    """
    own = side.own
    state = f"{side.name} on {side.device}: {side.backend}, {side.threads} thread(s)"
    rows = [
        ("latency", "ms", _milliseconds(side, own), _latency_remark(side)),
        *(
            (f"latency of {name}", "ms", _milliseconds(side, one), _ratio(own, one))
            for name, one in side.peers.items()
        ),
        ("energy of a run", "mJ", own.energy.value_mj, _energy_remark(own)),
        ("instructions of a run", "", side.instructions, ""),
        ("bytes that the device runs", "B", side.bundle_bytes, ""),
        ("largest relative error", "", own.error, _allowed(own)),
        ("share of the time on default schedules", "", side.default_share, ""),
    ]
    known = [row for row in rows if row[2] is not None or row[3]]
    return Table("figures", state, _COLUMNS, tuple(known))


def _milliseconds(side: Side, one: EngineSide) -> float | None:
    return statistics.median(one.rounds_ms) if one.rounds_ms and side.timing.decides else None


def _latency_remark(side: Side) -> str:
    if not side.timing.decides:
        return f"the device {side.timing.state}"
    if not side.timing.compares:
        return f"the time of {side.timing.source}"
    return "the device was slowed down" if side.own.throttled else ""


def _ratio(own: EngineSide, peer: EngineSide) -> str:
    if len(own.rounds_ms) != len(peer.rounds_ms) or not own.rounds_ms:
        return ""
    ratio: Estimate = paired_ratio(peer.rounds_ms, own.rounds_ms)
    bounds = f" ({ratio.low:.2f} to {ratio.high:.2f})" if ratio.bounded else ""
    return f"{ratio.value:.2f}{bounds} times ours"


def _energy_remark(own: EngineSide) -> str:
    energy = own.energy
    if energy.value_mj is None:
        return f"unavailable: {energy.reason}"
    return f"{energy.kind}, {energy.boundary}"


def _allowed(own: EngineSide) -> str:
    if own.error is None:
        return "not verified"
    return "" if own.tolerance is None else f"allowed {own.tolerance:.0e}"
