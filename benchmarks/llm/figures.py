"""Figures that the benchmark has beside those of a deployment."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np

from host.compare.text_peers.figures import OURS
from host.compare.text_peers.rounds import Measured

# Of the spread of logits: where two are as close, activations that are rounded decide between them.
_TIE = 0.05


def agrees(reference: np.ndarray, tokens: Sequence[int]) -> bool:
    """Whether an engine chose the likeliest token each time, or one that is as likely but for rounding.

    Args:
        reference: (n, V) logits behind each of the texts that it chose a token for.
        tokens: that it chose.
    """
    chosen = reference[np.arange(len(tokens)), list(tokens)]
    return bool((reference.max(axis=-1) - chosen <= _TIE * reference.std(axis=-1)).all())


def bandwidth_share(measured: Measured, step_tokens: int, step_bytes: int, read_bytes_s: float) -> float:
    """Bytes that our decoding reads a second, over what can be read.

    Args:
        measured: of the model.
        step_tokens: that a round decodes.
        step_bytes: that a token needs.
        read_bytes_s: of a loop that only reads.
    """
    step_s = statistics.median(measured.seconds["decode"][OURS]) / step_tokens
    return step_bytes / step_s / read_bytes_s


def arithmetic_share(measured: Measured, multiply_adds: int, peak: float) -> float:
    """Multiply-adds that our prefill does a second, over what the processor can do.

    Args:
        measured: of the model.
        multiply_adds: that the prompt needs.
        peak: multiply-adds a second of a loop over registers.
    """
    return multiply_adds / statistics.median(measured.seconds["prefill"][OURS]) / peak
