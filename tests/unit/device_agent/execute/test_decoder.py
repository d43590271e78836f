"""Which calls of a language model compute a prompt."""

from __future__ import annotations

import pytest

from device_agent.execute import decoder as decoders
from device_agent.execute import ffi
from device_agent.execute.decoder import Decoder
from device_agent.execute.virtual_machine import Entry

CONTEXT, CHUNK, LONG = 128, 32, 64


class Machine:
    """A model that computes nothing."""

    def __init__(self) -> None:
        self.inputs: list[object] = []
        self.invoke = None

    def entry(self, name, inputs, texts):
        assert texts == (0,)
        size = {"prefill": CHUNK, "long_prefill": LONG}[name]
        assert [info.shape for info in inputs] == [(size,), (1,), (1,)]
        return Entry([size], None)


@pytest.fixture
def sizes():
    """Rows that each call computes."""
    return []


@pytest.fixture
def calls(monkeypatch, sizes):
    """Calls as (position, rows that are wanted)."""
    made = []

    def call(function, values):
        rows = values[2][0] + 1 if isinstance(function, Entry) else 1
        assert len(values[0]) == (function.inputs[0] if isinstance(function, Entry) else 1)
        made.append((values[1][0], rows))
        sizes.append(len(values[0]))

    monkeypatch.setattr(decoders, "called", call)
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


@pytest.mark.parametrize(
    ("rounding", "count", "expected"),
    [
        # Short chunks would compute fewer rows.
        ({}, 39, [(0, 32, CHUNK)] + [(place, 1, 1) for place in range(32, 39)]),
        # As many rows, and the weights are taken apart once.
        ({}, 40, [(0, 40, LONG)]),
        ({}, 64, [(0, 64, LONG)]),
        ({}, 96, [(0, 64, LONG), (64, 32, CHUNK)]),
        ({}, 128, [(0, 64, LONG), (64, 64, LONG)]),
        ({"rounding": 8}, 40, [(0, 32, CHUNK)] + [(place, 1, 1) for place in range(32, 40)]),
        ({"rounding": 8}, 41, [(0, 40, LONG), (40, 1, 1)]),
        ({"rounding": 8}, 128, [(0, 64, LONG), (64, 63, LONG), (127, 1, 1)]),
    ],
)
def test_long_chunks_are_used_where_short_ones_have_as_many_rows(calls, sizes, rounding, count, expected):
    fields = {"context": CONTEXT, "chunk": CHUNK, "long_chunk": LONG, "vocabulary": 10, "end_tokens": []}
    Decoder(Machine(), {**fields, **rounding}).logits([place % 10 for place in range(count)])
    assert [(*call, size) for call, size in zip(calls, sizes, strict=True)] == expected


def test_no_long_chunk_goes_beyond_the_context(calls, sizes):
    fields = {"context": CONTEXT, "chunk": CHUNK, "long_chunk": LONG, "vocabulary": 10, "end_tokens": []}
    decoder = Decoder(Machine(), fields)
    decoder.logits([1] * 80)
    calls.clear()
    sizes.clear()
    decoder.logits([1] * 128)
    # As a short one, it begins at tokens that are known.
    assert (calls, sizes, decoder.reused) == ([(64, 64)], [LONG], 80)


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
