"""The measurements of one language model: engines work in turn, and the others wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from host.compare.text_peers.figures import OURS, tokens_of
from host.compare.text_peers.process import EngineProcess, seconds_of
from host.errors import EngineError, one_line

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
    between: Callable[[str], None] = lambda kind: None,
) -> Measured:
    """Load a model in every engine, and measure them in turn.

    Args:
        engines: by name, ours among them, nothing loaded.
        paths: of the model, by engine.
        plan: what to measure.
        threads: to compute with.
        between: called behind each round, with its kind: "prefill", or one of `Plan.positions`.

    Raises:
        EngineError: our engine failed. A peer that fails, however late, is left out.
    """
    present = _Present(dict(engines), {})
    first = present.each(0, lambda engine: _first_token(engine, paths[engine.name], plan, threads))
    seconds = {"prefill": _prefill(present, plan, between)}
    for kind in plan.positions:
        seconds[kind] = _decode(present, plan, kind, between)
    left = present.engines
    return Measured(
        {kind: {name: times[name] for name in left} for kind, times in seconds.items()},
        {name: first[name] for name in left},
        present.failed,
    )


@dataclass(frozen=True)
class _Present:
    """The engines that work still, and why others were left out, by name."""

    engines: dict[str, EngineProcess]
    failed: dict[str, str]

    def each(self, number: int, work: Callable[[EngineProcess], float]) -> dict[str, float]:
        """Let the engines work one after the other; a peer that fails is left out and its process ended.

        Args:
            number: of the round.
            work: what an engine does.

        Raises:
            EngineError: our engine failed.
        """
        found = {}
        for name, engine in turns(self.engines, number):
            try:
                found[name] = work(engine)
            except EngineError as error:
                if name == OURS:
                    raise
                self.failed[name] = one_line(error)
                del self.engines[name]
                # It would take memory and processors from those that are measured.
                engine.close()
        return found


def _first_token(engine: EngineProcess, path: str, plan: Plan, threads: int) -> float:
    loaded = engine.watched("load", path=path, threads=threads, context=plan.context)
    # Not watched: its pages are looked at again before every kind of rounds.
    answer = engine.ask("prompt", tokens=tokens_of(0, plan.prompt, plan.vocabulary))
    return seconds_of(engine.name, "load", loaded) + seconds_of(engine.name, "prompt", answer)


def _prefill(present: _Present, plan: Plan, between: Callable[[str], None]) -> dict[str, list[float]]:
    def text(number: int) -> list[int]:
        return tokens_of(1 + number, plan.prompt, plan.vocabulary)

    def warm(engine: EngineProcess) -> float:
        return seconds_of(engine.name, "prompt", engine.watched("prompt", tokens=text(0)))

    present.each(0, warm)
    found: dict[str, list[float]] = {name: [] for name in present.engines}
    for number in range(plan.rounds):
        prompt = text(1 + number)

        def read(engine: EngineProcess, prompt: list[int] = prompt) -> float:
            return _rested(seconds_of(engine.name, "prompt", engine.ask("prompt", tokens=prompt)))

        for name, seconds in present.each(number, read).items():
            found[name].append(seconds)
        between("prefill")
    return found


def _rested(seconds: float) -> float:
    time.sleep(PAUSE_S)
    return seconds


def _decode(
    present: _Present, plan: Plan, kind: str, between: Callable[[str], None]
) -> dict[str, list[float]]:
    position = plan.positions[kind]
    text = tokens_of(_TEXT_SEED + position, position, plan.vocabulary)

    def decode(engine: EngineProcess) -> float:
        answer = engine.ask("decode", tokens=text, count=plan.decoded)
        return _rested(seconds_of(engine.name, "decode", answer))

    def warm(engine: EngineProcess) -> float:
        return seconds_of(engine.name, "decode", engine.watched("decode", tokens=text, count=1))

    present.each(0, warm)
    found: dict[str, list[float]] = {name: [] for name in present.engines}
    for number in range(plan.rounds):
        for name, seconds in present.each(number, decode).items():
            found[name].append(seconds)
        between(kind)
    return found


def turns(engines: Mapping[str, EngineProcess], number: int) -> Sequence[tuple[str, EngineProcess]]:
    """The engines of a round; every other round the other way round."""
    order = list(engines.items())
    return order if number % 2 == 0 else order[::-1]


def peaks_mb(engines: Mapping[str, EngineProcess]) -> dict[str, Any]:
    """Peak memory of every engine's process."""
    return {name: engine.peak_bytes / 1e6 for name, engine in engines.items()}
