"""How well a language model continues a text of the user's: plain data, and the figures in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

# What a text is compared with: the model in float32 as it came, or the values of a file that was quantised.
FLOATS, FILE = "float32", "file"


@dataclass(frozen=True, eq=False)
class TextReference:
    """The reference for a user's text: logits and a continuation by transformers in float32.

    Attributes:
        tokens: (n) int32 of the text.
        logits: (n, V) float32 behind each of them, by the weights as they are in the files.
        baseline: `FLOATS`, or `FILE` where the weights in the files are quantised already.
        prompt: tokens of the text that are continued.
        greedy: tokens that continue them, the likeliest each time, by the weights of the bundle.
        weights_divergence: of the weights of the bundle in float32 from those in the files, nats a token:
            what quantising alone does. 0 where it changes none.
    """

    tokens: np.ndarray
    logits: np.ndarray
    baseline: str
    prompt: int
    greedy: tuple[int, ...]
    weights_divergence: float = 0.0


@dataclass(frozen=True)
class TextQuality:
    """How well the bundle continues the text, on the device.

    Attributes:
        tokens: of the text.
        baseline: see `TextReference`.
        perplexity: of the bundle, exp of the mean negative log-likelihood of each token but the first.
        baseline_perplexity: of the baseline.
        divergence: mean Kullback-Leibler divergence of the distribution of the next token from the
            baseline's, nats a token.
        weights_divergence: the part of it that the weights alone make; see `TextReference`.
        agreement: share of the places where the likeliest next token is the baseline's.
        greedy_tokens: that transformers continued the text with, by the weights of the bundle.
        greedy_equal: leading ones of these that the bundle wrote too.
    """

    tokens: int
    baseline: str
    perplexity: float
    baseline_perplexity: float
    divergence: float
    weights_divergence: float
    agreement: float
    greedy_tokens: int
    greedy_equal: int


def log_probabilities(logits: np.ndarray) -> np.ndarray:
    """Logarithms (..., V) float64 of the probabilities of logits."""
    import numpy as np

    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def divergence(reference: np.ndarray, logits: np.ndarray) -> float:
    """Mean Kullback-Leibler divergence of the distributions of the next token, in nats.

    Args:
        reference: (n, V) logits of what should be.
        logits: of what is.

    Raises:
        ValueError: they have different shapes, or some are not finite.
    """
    import numpy as np

    if reference.shape != logits.shape:
        raise ValueError(f"logits {list(logits.shape)} beside {list(reference.shape)}")
    if not (np.isfinite(reference).all() and np.isfinite(logits).all()):
        raise ValueError("some logits are not finite")
    # Row by row: all distributions in double precision are twice as large as the logits.
    total = 0.0
    for wanted_row, found_row in zip(reference, logits, strict=True):
        wanted, found = log_probabilities(wanted_row), log_probabilities(found_row)
        total += float((np.exp(wanted) * (wanted - found)).sum())
    return total / len(reference)
