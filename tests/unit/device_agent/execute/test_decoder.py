"""Which calls of a language model compute a prompt."""

from __future__ import annotations

import pytest

from device_agent.execute import decoder as decoders
from device_agent.execute import ffi
from device_agent.execute.decoder import Decoder
from device_agent.execute.virtual_machine import Entry

CONTEXT, CHUNK = 128, 32


class Machine:
    """A model that computes nothing."""

    def __init__(self) -> None:
        self.inputs: list[object] = []
        self.invoke = None

    def entry(self, name, inputs, texts):
        assert name == "prefill" and texts == (0,)
        assert [info.shape for info in inputs] == [(CHUNK,), (1,), (1,)]
        return Entry([], None)


@pytest.fixture
def calls(monkeypatch):
    """Calls as (position, rows that are wanted)."""
    made = []

    def call(function, values):
        rows = values[2][0] + 1 if isinstance(function, Entry) else 1
        assert len(values[0]) == (CHUNK if isinstance(function, Entry) else 1)
        made.append((values[1][0], rows))

    monkeypatch.setattr(Decoder, "_call", staticmethod(call))
    monkeypatch.setattr(decoders, "tensors_of", lambda result: [result])
    monkeypatch.setattr(ffi, "to_bytes", lambda tensor, size: bytearray(size))
    return made


@pytest.fixture
def decoder(calls):
    fields = {"context": CONTEXT, "chunk": CHUNK, "vocabulary": 10, "end_tokens": []}
    return Decoder(Machine(), fields)


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (1, [(0, 1)]),
        (7, [(place, 1) for place in range(7)]),
        # As many that a chunk, which computes all of its rows, is no slower than steps.
        (8, [(0, 8)]),
        (32, [(0, 32)]),
        (34, [(0, 32), (32, 1), (33, 1)]),
        (72, [(0, 32), (32, 32), (64, 8)]),
        (128, [(0, 32), (32, 32), (64, 32), (96, 32)]),
    ],
)
def test_chunks_are_used_where_enough_tokens_are_left(decoder, calls, count, expected):
    decoder.logits([place % 10 for place in range(count)])
    assert calls == expected


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (1, [(0, 1)]),
        (8, [(place, 1) for place in range(8)]),
        (9, [(0, 8), (8, 1)]),
        (32, [(0, 31), (31, 1)]),
        (33, [(0, 32), (32, 1)]),
        (128, [(0, 32), (32, 32), (64, 32), (96, 31), (127, 1)]),
    ],
)
def test_a_step_computes_the_last_token_where_chunks_round_to_bytes(calls, count, expected):
    fields = {"context": CONTEXT, "chunk": CHUNK, "vocabulary": 10, "end_tokens": [], "rounding": 8}
    Decoder(Machine(), fields).logits([place % 10 for place in range(count)])
    assert calls == expected


def test_no_chunk_goes_beyond_the_context(decoder, calls):
    decoder.logits([1] * 100)
    calls.clear()
    decoder.logits([1] * 128)
    # It begins at tokens that are known: its rows are computed anyway.
    assert calls == [(96, 32)] and decoder.reused == 100


def test_the_last_token_is_computed_for_its_logits(decoder, calls):
    decoder.logits([1, 2, 3])
    calls.clear()
    decoder.logits([1, 2, 3])
    assert calls == [(2, 1)] and decoder.reused == 2
    decoder.forget()
    decoder.logits([1, 2, 3])
    assert decoder.reused == 0
