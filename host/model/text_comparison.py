"""A language model beside other engines: plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from host.statistics import Estimate

KINDS = ("decode", "decode_long", "prefill")
"""What is compared: steps behind a short text and behind a long one, and a prompt."""


@dataclass(frozen=True)
class EngineTexts:
    """The figures of one engine.

    Attributes:
        engine: its name.
        version: of it, as it says.
        tokens_s: tokens a second, the median of rounds, by kind.
        speedup: its time over ours with 95% bounds, by kind; empty for ours.
        peak_memory_bytes: proportional set size of its process.
        first_token_s: from the beginning of loading to the token behind a prompt.
        divergence: of its distribution of the next token from ours, in nats a token; None for ours.
    """

    engine: str
    version: str
    tokens_s: Mapping[str, float]
    speedup: Mapping[str, Estimate]
    peak_memory_bytes: int
    first_token_s: float
    divergence: float | None = None


@dataclass(frozen=True)
class TextComparison:
    """Our engine and others, measured in turn.

    Attributes:
        ours: the bundle.
        peers: that were measured.
        tokens: of a round, by kind.
        behind: tokens that precede those that are decoded, by kind.
        rounds: of each kind.
        missing: why a peer was left out, by name.
    """

    ours: EngineTexts
    peers: tuple[EngineTexts, ...]
    tokens: Mapping[str, int]
    behind: Mapping[str, int]
    rounds: int
    missing: Mapping[str, str] = field(default_factory=dict)

    def best_peer(self, kind: str) -> EngineTexts:
        """The peer with the most tokens a second.

        Raises:
            ValueError: there is no peer.
        """
        return max(self.peers, key=lambda one: one.tokens_s[kind])
