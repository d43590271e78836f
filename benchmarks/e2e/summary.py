"""The speed of many models beside the best of their peers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from host.statistics import MIN_TRIALS, mean_of


class BestPeer(NamedTuple):
    """The fastest other engine of a model.

    Attributes:
        engine: its name.
        speed: its time over ours.
        low: lower 95% bound of that; None if unknown.
        high: upper 95% bound.
    """

    engine: str
    speed: float
    low: float | None
    high: float | None


def best_peer(entry: Mapping[str, Any]) -> BestPeer | None:
    """The peer with the shortest time; None where no peer ran the model, or ours failed."""
    speeds = entry["speedup"]
    if not speeds:
        return None
    engine = min(speeds, key=lambda name: float(speeds[name]))
    low, high = entry.get("bounds", {}).get(engine, (None, None))
    return BestPeer(engine, speeds[engine], low, high)


def summary_of(models: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Figures over all models of a result.

    Returns:
        `models`, the number of models, `failed`, those that were not verified, `slower`, those that are
        slower than their best peer beyond doubt, and of the speed beside the best peer `median`, `least`,
        and, from three models on, `geometric_mean`, `low` and `high`.
    """
    peers = {name: peer for name, entry in models.items() if (peer := best_peer(entry)) is not None}
    speeds = sorted(one.speed for one in peers.values())
    found: dict[str, Any] = {
        "models": len(models),
        "failed": [name for name, entry in models.items() if not entry["verified"]],
        "slower": [name for name, one in peers.items() if one.high is not None and one.high < 1.0],
        "median": speeds[len(speeds) // 2] if speeds else None,
        "least": speeds[0] if speeds else None,
    }
    if len(speeds) >= MIN_TRIALS:
        mean = mean_of(speeds)
        found |= {"geometric_mean": mean.value, "low": mean.low, "high": mean.high}
    return found
