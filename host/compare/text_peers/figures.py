"""Figures of a language model beside other engines, out of what these answered."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from host.statistics import Estimate, paired_ratio

OURS = "edgetlm"
_KIND_NAMES = {
    "decode": "decode_tokens_s",
    "decode_long": "decode_long_tokens_s",
    "prefill": "prefill_tokens_s",
}


class BestPeer(NamedTuple):
    """The fastest other engine.

    Attributes:
        engine: its name.
        speed: its time over ours, with bounds.
    """

    engine: str
    speed: Estimate


def tokens_of(seed: int, count: int, vocabulary: int) -> list[int]:
    """A random text whose first token is the seed's own: two texts have no beginning in common."""
    drawn = np.random.default_rng(seed).integers(0, vocabulary, count).tolist()
    return [seed % vocabulary, *drawn[1:]]


def best_peer(seconds: Mapping[str, Sequence[float]]) -> BestPeer | None:
    """The peer with the shortest median time; None where there is none.

    Args:
        seconds: of each round by engine, ours among them; rounds correspond.
    """
    peers = [name for name in seconds if name != OURS]
    if not peers:
        return None
    engine = min(peers, key=lambda name: statistics.median(seconds[name]))
    return BestPeer(engine, paired_ratio(seconds[engine], seconds[OURS]))


def speeds(seconds: Mapping[str, Mapping[str, Sequence[float]]], tokens: Mapping[str, int]) -> dict[str, Any]:
    """Tokens a second, and speedups with their bounds.

    Args:
        seconds: of each round, by kind ("decode", "decode_long", "prefill") and engine.
        tokens: of a round, by kind.
    """
    found: dict[str, Any] = {}
    speedup, bounds, best = {}, {}, {}
    for kind, by_engine in seconds.items():
        found[_KIND_NAMES[kind]] = {
            engine: tokens[kind] / statistics.median(times) for engine, times in by_engine.items()
        }
        peer = best_peer(by_engine)
        if peer is not None:
            speedup[kind], best[kind] = peer.speed.value, peer.engine
            bounds[kind] = [peer.speed.low, peer.speed.high]
    return found | {"speedup": speedup, "bounds": bounds, "best_peer": best}
