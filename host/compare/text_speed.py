"""Measures how fast a language model's bundle reads a prompt and writes a text, by the length of the text."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from device_agent.contract.manifest import LONG_PREFILL, PREFILL
from host.manifest import DecoderPart
from host.model import Measurement
from host.model.text_speed import StepSpeed, TextSpeed

# Tokens of the prompt that is measured at most, and of the shortest text.
PROMPT, SHORT = 512, 128
# Seconds of steps of each length, and of prompts; one prompt at least.
_STEPS_S, _PROMPTS_S = 0.5, 1.0
_MOST_PROMPTS = 5


class Measures(Protocol):
    """What is needed of a session with the bundle loaded."""

    def measure(self, inputs: Sequence[np.ndarray] | None = None, **plan: float | int | bool) -> Measurement:
        """Inferences, on the device's own clock."""

    def call_s(self, inputs: Sequence[np.ndarray], function: str) -> float:
        """Seconds of one call of a function beside main, on the device's own clock."""


def measure_text_speed(
    session: Measures, decoder: DecoderPart, step_bytes: int, read_bytes_s: float | None
) -> TextSpeed:
    """Steps behind a short text, half of the context and all of it, and the longest prompt up to `PROMPT`.

    What is computed does not matter: the time of a step depends on its position alone.

    Args:
        session: with the bundle loaded; the state is changed.
        decoder: of the bundle.
        step_bytes: of weights that a step reads.
        read_bytes_s: that the device reads in a second; None where that is not known.

    Raises:
        DeviceError: the device or its executor went away.
        EngineError: the engine refused the model.
        MeasureError: it gave no sample.
    """
    context = decoder.context
    places = sorted({place for place in (min(SHORT, context // 2), context // 2, context - 1) if place > 0})
    steps = []
    for place in places:
        found = session.measure(_ints([0], [place]), warmup_s=0.2, min_time_s=_STEPS_S, trials=1)
        steps.append(StepSpeed(place, found.median_s, found.energy.gross_j))
    calls, tokens = _chunks(decoder)
    # Where a chunk rounds, the last token is computed by a step, for its logits.
    behind = steps[0].seconds if decoder.rounding else 0.0
    for function in sorted({function for _, function in calls}):
        session.call_s(next(inputs for inputs, other in calls if other == function), function)
    seconds: list[float] = []
    while len(seconds) < _MOST_PROMPTS and sum(seconds) < _PROMPTS_S:
        seconds.append(sum(session.call_s(inputs, function) for inputs, function in calls) + behind)
    return TextSpeed(tuple(steps), tokens, statistics.median(seconds), step_bytes, read_bytes_s)


def _chunks(decoder: DecoderPart) -> tuple[list[tuple[tuple[np.ndarray, ...], str]], int]:
    """The inputs and the function of each call for the prompt, as a runtime makes them, and its tokens."""
    calls: list[tuple[tuple[np.ndarray, ...], str]] = []
    place = 0
    for size, function in ((decoder.long_chunk or 0, LONG_PREFILL), (decoder.chunk, PREFILL)):
        # One call at least, whose rows are computed however short the prompt is.
        while size and (place + size <= min(PROMPT, decoder.context) or (function == PREFILL and not place)):
            calls.append((_ints([0] * size, [place], [size - 1]), function))
            place += size
    return calls, place


def _ints(*values: Sequence[int]) -> tuple[np.ndarray, ...]:
    return tuple(np.array(one, np.int32) for one in values)
