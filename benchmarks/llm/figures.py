"""Figures that the benchmark has beside those of a deployment."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from host.compare.text_peers.figures import OURS
from host.compare.text_peers.rounds import Measured

# Of the spread of logits: where two are as close, activations that are rounded decide between them.
_TIE = 0.05
# Their files have as many bytes of numbers and scales as our bundles.
_SAME_BYTES = ("llama.cpp", "llama.cpp-no-flash")


def agrees(reference: np.ndarray, tokens: Sequence[int]) -> bool:
    """Whether an engine chose the likeliest token each time, or one that is as likely but for rounding.

    Args:
        reference: (n, V) logits behind each of the texts that it chose a token for.
        tokens: that it chose.
    """
    chosen = reference[np.arange(len(tokens)), list(tokens)]
    return bool((reference.max(axis=-1) - chosen <= _TIE * reference.std(axis=-1)).all())


def memory_figures(
    measured: Measured,
    step_tokens: int,
    step_bytes: int,
    kept_bytes: int,
    read: Mapping[str, Sequence[float]],
) -> dict[str, Any]:
    """How much of what can be read decoding behind a short text reads.

    Args:
        measured: of the model.
        step_tokens: that a round decodes.
        step_bytes: of weights that a token needs.
        kept_bytes: of keys and values that it needs.
        read: bytes a second of loops that only read, of each round by loop.

    Returns:
        `read_loops` with the median of each loop; `read_bytes_s`, that of the fastest, and `read_loop`, its
        name; `bandwidth_share` and `bandwidth_share_with_cache`, ours of it; `peer_bandwidth_share`, by
        engine, of peers with weights of as many bytes; and `decode_ceiling`, the speed to the best peer that
        a step would have which took no longer than reading its weights, where there is a peer.
    """
    loops = {name: statistics.median(rates) for name, rates in read.items()}
    fastest = max(loops, key=loops.__getitem__)
    limit = loops[fastest]
    seconds = {
        name: statistics.median(times) / step_tokens for name, times in measured.seconds["decode"].items()
    }
    peers = {name: one for name, one in seconds.items() if name != OURS}
    found: dict[str, Any] = {
        "step_bytes": step_bytes,
        "read_bytes_s": limit,
        "read_loop": fastest,
        "read_loops": loops,
        "bandwidth_share": step_bytes / seconds[OURS] / limit,
        "bandwidth_share_with_cache": (step_bytes + kept_bytes) / seconds[OURS] / limit,
        "peer_bandwidth_share": {
            name: step_bytes / one / limit for name, one in peers.items() if name in _SAME_BYTES
        },
    }
    if peers:
        found["decode_ceiling"] = min(peers.values()) / (step_bytes / limit)
    return found


def arithmetic_share(measured: Measured, multiply_adds: int, peak: float) -> float:
    """Multiply-adds that our prefill does a second, over what the processor can do.

    Args:
        measured: of the model.
        multiply_adds: that the prompt needs.
        peak: multiply-adds a second of a loop over registers.
    """
    return multiply_adds / statistics.median(measured.seconds["prefill"][OURS]) / peak
