"""The measurements of one language model: engines work in turn, and the others wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from host.compare.text_peers.figures import OURS, tokens_of
from host.compare.text_peers.process import EngineProcess
from host.errors import EngineError

PREFILL_TOKENS = 512
SHORT = 128
DECODED = 32
"""Tokens of a round of decoding."""

PAUSE_S = 0.1
"""Rest behind a measurement."""

# A long text ends so many tokens before the context does.
_MARGIN = 64
_LONG_CONTEXT = 2048
_TEXT_SEED = 1_000_000


@dataclass(frozen=True)
class Plan:
    """The plan of the measurements.

    Attributes:
        vocabulary: of the model.
        context: tokens that the engines keep.
        rounds: of each kind.
    """

    vocabulary: int
    context: int
    rounds: int

    @property
    def prompt(self) -> int:
        """Tokens of a prompt: half of a short context."""
        return min(PREFILL_TOKENS, self.context // 2)

    @property
    def decoded(self) -> int:
        """Tokens of a round of decoding."""
        return min(DECODED, self.context // 4)

    @property
    def positions(self) -> dict[str, int]:
        """Tokens that precede those that are decoded, by kind."""
        short = min(SHORT, self.context // 4)
        long = {"decode_long": self.context - _MARGIN} if self.context >= _LONG_CONTEXT else {}
        return {"decode": short} | long

    @property
    def tokens(self) -> dict[str, int]:
        """Tokens of a round, by kind."""
        return {"prefill": self.prompt} | dict.fromkeys(self.positions, self.decoded)


@dataclass(frozen=True)
class Measured:
    """The measurements of all rounds.

    Attributes:
        seconds: of each round, by kind and engine.
        first_token_s: from the beginning of loading to the first token behind a prompt, by engine.
        failed: why a peer was left out, by name.
    """

    seconds: dict[str, dict[str, list[float]]]
    first_token_s: dict[str, float]
    failed: dict[str, str]


def measure(
    engines: Mapping[str, EngineProcess],
    paths: Mapping[str, str],
    plan: Plan,
    threads: int,
    between: Callable[[], None] = lambda: None,
) -> Measured:
    """Load a model in every engine, and measure them in turn.

    Args:
        engines: by name, ours among them, nothing loaded.
        paths: of the model, by engine.
        plan: what to measure.
        threads: to compute with.
        between: called behind each round of decoding.

    Raises:
        EngineError: our engine failed, or a peer that has worked before.
    """
    first: dict[str, float] = {}
    failed: dict[str, str] = {}
    for name, engine in engines.items():
        try:
            first[name] = _first_token(engine, paths[name], plan, threads)
        except EngineError as error:
            if name == OURS:
                raise
            failed[name] = str(error)
    engines = {name: engines[name] for name in first}
    seconds = {"prefill": _prefill(engines, plan)}
    for kind, position in plan.positions.items():
        text = tokens_of(_TEXT_SEED + position, position, plan.vocabulary)
        for engine in engines.values():
            engine.watched("decode", tokens=text, count=1)
        seconds[kind] = {name: [] for name in engines}
        for number in range(plan.rounds):
            for name, engine in turns(engines, number):
                answer = engine.ask("decode", tokens=text, count=plan.decoded)
                seconds[kind][name].append(answer["seconds"])
                time.sleep(PAUSE_S)
            between()
    return Measured(seconds, first, failed)


def _first_token(engine: EngineProcess, path: str, plan: Plan, threads: int) -> float:
    loaded = engine.watched("load", path=path, threads=threads, context=plan.context)
    # Not watched: its pages are looked at again before every kind of rounds.
    answer = engine.ask("prompt", tokens=tokens_of(0, plan.prompt, plan.vocabulary))
    return float(loaded["seconds"] + answer["seconds"])


def _prefill(engines: Mapping[str, EngineProcess], plan: Plan) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in engines}
    for engine in engines.values():
        engine.watched("prompt", tokens=tokens_of(1, plan.prompt, plan.vocabulary))
    for number in range(plan.rounds):
        prompt = tokens_of(2 + number, plan.prompt, plan.vocabulary)
        for name, engine in turns(engines, number):
            found[name].append(engine.ask("prompt", tokens=prompt)["seconds"])
            time.sleep(PAUSE_S)
    return found


def turns(engines: Mapping[str, EngineProcess], number: int) -> Sequence[tuple[str, EngineProcess]]:
    """The engines of a round; every other round the other way round."""
    order = list(engines.items())
    return order if number % 2 == 0 else order[::-1]


def peaks_mb(engines: Mapping[str, EngineProcess]) -> dict[str, Any]:
    """Peak memory of every engine's process."""
    return {name: engine.peak_bytes / 1e6 for name, engine in engines.items()}
