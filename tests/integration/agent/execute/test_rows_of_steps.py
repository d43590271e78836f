"""Rows of calls of several tokens: the logits of steps, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import device_agent.runtime as runtime
import sdk
from device_agent.execute.decoder import Decoder
from host.bundle import load as load_bundle
from tests.unit.importers.decoders.models import save

pytestmark = pytest.mark.usefixtures("trusted_here")

# Tokens of a prompt behind a chunk of the prefill, which are steps, and drafted ones.
BEHIND, DRAFTED = 11, 3

# Fields of the model, and options of the compiler. Few heads of queries, and many, share a head of keys.
CASES: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "int4": ({}, {"quantize": "int4"}),
    "int8": (
        {"num_attention_heads": 8, "num_key_value_heads": 1},
        {"quantize": "int8", "cache": "int8"},
    ),
    "float32": (
        {"kind": "gemma2", "hidden_size": 128, "sliding_window": 16, "query_pre_attn_scalar": 32},
        {"threads": 2},
    ),
}
# So much work that two threads are woken for the positions of the one head before the text ends.
SHARED = (
    {"head_dim": 128, "num_attention_heads": 16, "num_key_value_heads": 1, "max_position_embeddings": 8192},
    {"quantize": "int4", "threads": 2, "context_tokens": 8192},
)


def made(folder: Path, fields: Mapping[str, Any], options: Mapping[str, Any]) -> Path:
    """A bundle with places for two texts."""
    sizes = {"kind": "qwen3", "head_dim": 32, "max_position_embeddings": 256, **fields}
    save(folder / "model", **sizes)
    every = {"threads": 1, "context_tokens": 192, "sequences": 2, **options}
    sdk.compile(folder / "model", output=folder / "bundle", backend="tvm", **every)
    return folder / "bundle"


def by_steps(decoder: Decoder, tokens: Sequence[int], behind: int) -> list[np.ndarray]:
    """Logits behind the first tokens, and behind each that follows them, each by a step."""
    return [floats(decoder.logits(tokens[:place])) for place in range(behind, len(tokens) + 1)]


def floats(data: Any) -> np.ndarray:
    """Logits (V,) float32."""
    return np.frombuffer(bytes(data), np.float32)


def follow(bundle: Path, count: int, distance: int) -> None:
    """Compares drafts all along a text of random tokens, and the steps of two texts at once."""
    one, several = (runtime.load(bundle)._generation for _ in range(2))
    assert one is not None and several is not None and one.decoder.verified == DRAFTED + 1
    prompt = one.decoder._chunk + BEHIND
    text = np.random.default_rng(1).integers(128, size=prompt + count).tolist()
    for known in range(prompt + 1, len(text) - DRAFTED, distance):
        steps = by_steps(one.decoder, text[: known + DRAFTED], known)
        assert len({step.tobytes() for step in steps}) > 1
        several.decoder.logits(text[: known - 1])
        rows = several.decoder.verify(text[:known], text[known : known + DRAFTED])
        for step, row in zip(steps, rows, strict=True):
            np.testing.assert_array_equal(floats(row), step)
    first, second = [9, 4, 4, 9, 5], text[: prompt + 1]
    texts = several._decoders
    texts.begin(0, first[:-1])
    texts.begin(1, second[:-1])
    for token in (3, 100, 77, 4):
        together = texts.step({0: first, 1: second})
        for place, tokens in enumerate((first, second)):
            np.testing.assert_array_equal(floats(together[place]), floats(one.decoder.logits(tokens)))
            tokens.append(token + place)


@pytest.mark.parametrize("case", CASES)
def test_a_row_has_the_bits_of_a_step(case: str, tmp_path: Path) -> None:
    follow(made(tmp_path, *CASES[case]), 90, 5)


def test_a_row_has_the_bits_of_a_step_where_threads_share_positions(tmp_path: Path) -> None:
    bundle = made(tmp_path, *SHARED)
    few = [one for one in load_bundle(bundle).kernels if one.rule == "cached_attention"]
    assert sum(one.decisions["splits"] == 2 for one in few) >= 2
    follow(bundle, 150, 9)
