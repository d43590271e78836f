"""How well a language model continues a text, and how fast, as text for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from host.model.text_comparison import EngineTexts, TextComparison
    from host.model.text_quality import TextQuality
    from host.model.text_speed import StepSpeed, TextSpeed

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


def speed_lines(one: TextSpeed) -> list[str]:
    """Tokens a second by the length of the text, of a prompt, and the time to the first token."""
    steps = [f"{_rate(1.0 / step.seconds)} behind {step.behind} tokens{_joules(step)}" for step in one.steps]
    share = one.bandwidth_share
    read = "" if share is None else f", {share:.0%} of what the memory gives"
    if share is not None and share > 1.0:
        read += ": caches hold a part of them"
    return [
        f"writes {', '.join(steps)}",
        f"weights of {one.step_bytes / 1e6:,.4g} MB a token{read}",
        f"reads a prompt of {one.prompt_tokens} at {_rate(one.prompt_tokens_s)}, first token after "
        f"{one.prompt_s:.3g} s",
    ]


def peer_lines(one: TextComparison) -> list[str]:
    """A line for each engine, ours first: tokens a second, memory and the time to the first token."""
    return [_engine_line(engine, one) for engine in (one.ours, *one.peers)]


def _engine_line(engine: EngineTexts, one: TextComparison) -> str:
    written = [
        f"{_rate(engine.tokens_s[kind])} behind {behind} tokens" for kind, behind in one.behind.items()
    ]
    far = "" if engine.divergence is None else f", {engine.divergence:.2g} nats from ours"
    return (
        f"{engine.engine:<18} writes {', '.join(written)}; reads {one.tokens['prefill']} at "
        f"{_rate(engine.tokens_s['prefill'])}; first token with loading {engine.first_token_s:.3g} s; "
        f"{engine.peak_memory_bytes / 1e6:,.0f} MB{far}"
    )


def _joules(step: StepSpeed) -> str:
    return "" if step.joules is None else f" ({step.joules:.3g} J a token)"


def _rate(tokens_s: float) -> str:
    return f"{tokens_s:,.0f} tokens/s" if tokens_s >= 100 else f"{tokens_s:.3g} tokens/s"
