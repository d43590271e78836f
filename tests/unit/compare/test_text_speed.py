"""How fast a language model reads and writes: which calls are timed, and what is made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from host.compare.text_speed import measure_text_speed
from host.deploy.figures import text_speed
from host.manifest import DecoderPart
from sdk.report.quantisation.language_model import speed_lines
from tests.unit.compare.samples import measurement


class Device:
    """A step takes 1 ms and a microsecond a position, a chunk 32 ms behind a first one of 100."""

    def __init__(self, joules: float | None = None) -> None:
        self.joules = joules
        self.places: list[int] = []
        self.chunks: list[int] = []
        self.long_chunks: list[int] = []

    def measure(self, inputs: Sequence[np.ndarray] | None = None, **plan: Any) -> Any:
        assert inputs is not None and inputs[0].shape == inputs[1].shape == (1,)
        place = int(inputs[1][0])
        self.places.append(place)
        found = measurement(1.0 + place * 1e-3)
        return replace(found, energy=replace(found.energy, gross_j=self.joules))

    def call_s(self, inputs: Sequence[np.ndarray], function: str) -> float:
        if function == "long_prefill":
            assert inputs[0].shape == (128,) and inputs[2][0] == 127
            self.long_chunks.append(int(inputs[1][0]))
            return 0.06 if len(self.long_chunks) > 1 else 0.1
        assert function == "prefill" and inputs[0].shape == (64,) and inputs[2][0] == 63
        self.chunks.append(int(inputs[1][0]))
        return 0.032 if len(self.chunks) > 1 else 0.1


def decoder(context: int, rounding: int | None = None, long_chunk: int | None = None) -> DecoderPart:
    return DecoderPart(
        context=context, chunk=64, vocabulary=100, end_tokens=(), rounding=rounding, long_chunk=long_chunk
    )


def test_steps_and_chunks_of_a_long_context() -> None:
    device = Device(joules=0.25)
    found = measure_text_speed(device, decoder(2048), 4_000_000, 8e9)
    assert device.places == [128, 1024, 2047]
    # The first call warms up; prompts are repeated for a second.
    assert device.chunks == [0] + 4 * [64 * number for number in range(8)]
    assert (found.prompt_tokens, found.prompt_s) == (512, pytest.approx(8 * 0.032))
    assert found.prompt_tokens_s == pytest.approx(2000)
    assert found.bandwidth_share == pytest.approx(4e6 / 1.128e-3 / 8e9)
    assert text_speed(found)["decode"][0] == {
        "behind": 128,
        "tokens_s": pytest.approx(1 / 1.128e-3),
        "joules_a_token": 0.25,
    }
    assert speed_lines(found) == [
        "writes 887 tokens/s behind 128 tokens (0.25 J a token), 494 tokens/s behind 1024 tokens (0.25 J a "
        "token), 328 tokens/s behind 2047 tokens (0.25 J a token)",
        "weights of 4 MB a token, 44% of what the memory gives",
        "reads a prompt of 512 at 2,000 tokens/s, first token after 0.256 s",
    ]


def test_a_prompt_has_long_chunks_first() -> None:
    device = Device()
    found = measure_text_speed(device, decoder(512, long_chunk=128), 4_000_000, None)
    assert set(device.long_chunks) == {0, 128, 256, 384} and not device.chunks
    assert (found.prompt_tokens, found.prompt_s) == (512, pytest.approx(4 * 0.06))
    found = measure_text_speed(device, decoder(448, long_chunk=128), 4_000_000, None)
    assert device.chunks[:2] == [384, 384] and set(device.chunks) == {384}
    assert (found.prompt_tokens, found.prompt_s) == (448, pytest.approx(3 * 0.06 + 0.032))


def test_a_short_context_has_short_texts_and_prompts() -> None:
    device = Device()
    found = measure_text_speed(device, decoder(64, rounding=8), 4_000_000, None)
    assert device.places == [32, 63] and set(device.chunks) == {0}
    # A chunk that rounds gives no logits: a step does.
    assert found.prompt_s == pytest.approx(0.032 + 1.032e-3)
    assert found.bandwidth_share is None and text_speed(found)["bandwidth_share"] is None
    assert "J a token" not in " ".join(speed_lines(found)) and "memory gives" not in " ".join(
        speed_lines(found)
    )
