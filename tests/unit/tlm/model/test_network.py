"""Checkpoints come back as they were, and damaged or foreign ones are told apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from host.errors import TlmError
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model.card import CARD, WEIGHTS, Size
from host.tlm.model.network import load_model, new_model, save_model

VOCABULARY = Vocabulary()
SIZE = Size(layers=1, heads=2, width=32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(new_model(VOCABULARY, SIZE, seed=1), tmp_path, VOCABULARY, SIZE, "base", {"steps": 3})
    return tmp_path


def test_a_checkpoint_says_what_was_saved(folder: Path) -> None:
    model, card = load_model(folder, VOCABULARY)
    tokens = torch.arange(20).reshape(1, -1)
    with torch.inference_mode():
        found = model(tokens)
        expected = new_model(VOCABULARY, SIZE, seed=1).eval()(tokens)
    torch.testing.assert_close(found, expected, rtol=2e-3, atol=2e-3)
    assert card.base == "base"
    assert card.size == SIZE
    assert card.training == {"steps": 3}
    count = sum(parameter.numel() for parameter in model.parameters())
    assert 2 * count < (folder / WEIGHTS).stat().st_size < 2 * count + 8192


def test_weights_are_seeded_and_the_shipped_size_is_small() -> None:
    one, same, other = (new_model(VOCABULARY, SIZE, seed=seed).transformer.wte.weight for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    count = sum(parameter.numel() for parameter in new_model(VOCABULARY, Size(), seed=0).parameters())
    assert 1_500_000 < count < 8_000_000
    with pytest.raises(TlmError, match="too large"):
        new_model(VOCABULARY, Size(layers=12, heads=12, width=768), seed=0)


def test_damaged_and_foreign_checkpoints_are_refused(folder: Path) -> None:
    weights, card = (folder / WEIGHTS).read_bytes(), json.loads((folder / CARD).read_text())

    def refused(match: str) -> None:
        with pytest.raises(TlmError, match=match) as caught:
            load_model(folder, VOCABULARY)
        assert "\n" not in str(caught.value)

    (folder / WEIGHTS).write_bytes(weights[:-100])
    refused("weights do not match")
    (folder / WEIGHTS).unlink()
    refused("train the model again")
    (folder / WEIGHTS).write_bytes(weights)
    for changed, match in (
        ({"vocabulary": "other"}, "vocabulary other"),
        ({"tokens": len(VOCABULARY) + 1}, f"{len(VOCABULARY) + 1} tokens"),
        ({"tokens": len(VOCABULARY) - 1}, "only be appended"),
        ({"untrained": ["rule:\x1bunheard"]}, r"damaged .*x1bunheard"),
        ({"training": {"text": "x" * (1 << 20)}}, "bytes"),
        ({"rules": 3}, "damaged"),
        ({"size": {"layers": 2, "heads": 2, "width": 32, "positions": 256}}, "do not fit"),
        ({"size": 3}, "damaged"),
        ({"size": {"layers": 1, "heads": 3, "width": 32, "positions": 256}}, "heads"),
        ({"size": {"layers": 1, "heads": 1, "width": 1 << 40, "positions": 256}}, "too large"),
        ({"schema": "other"}, "schema"),
    ):
        (folder / CARD).write_text(json.dumps({**card, **changed}))
        refused(match)
    (folder / CARD).write_text("{")
    refused("damaged")
    (folder / CARD).unlink()
    refused("no language model")
