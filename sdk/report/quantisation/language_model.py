"""How well a language model continues a text, as text for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from host.model.text_quality import TextQuality

_BASELINES = {"float32": "float32", "file": "the file's values in float32"}


def text_lines(one: TextQuality) -> list[str]:
    """Perplexity, divergence and the continuation, with what they are compared with."""
    baseline = _BASELINES[one.baseline]
    weights = f", of which the weights make {one.weights_divergence:.2g}" if one.weights_divergence else ""
    return [
        f"perplexity {one.perplexity:.4g} over {one.tokens} tokens, {baseline} has "
        f"{one.baseline_perplexity:.4g}",
        f"KL divergence from {baseline} {one.divergence:.2g} nats a token{weights}; the same likeliest token "
        f"in {one.agreement:.1%}",
        f"greedy continuation equal to the reference's for {one.greedy_equal} of {one.greedy_tokens} tokens",
    ]
