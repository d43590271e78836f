"""Every architecture computes what transformers computes, step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import safetensors.numpy

from host.importers.decoders.architectures import describe, known_architectures
from host.importers.decoders.config import Config
from host.importers.decoders.folder import read_folder
from host.importers.decoders.reference.child import logits_of
from host.importers.decoders.reference.model import make_model
from tests.decoders.operations import Machine, empty_state
from tests.unit.importers.decoders.models import SIZES, save
from tests.unit.importers.decoders.references import MODELS, Decoder, distance


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    kind, fields = MODELS[name]
    made = Decoder(tmp_path, save(tmp_path, kind, **fields))
    machine = Machine(made.step, empty_state(made.specs))
    for position, token in enumerate(made.tokens):
        logits = machine.run([token], [position])
        assert distance(logits[0], made.logits[position]) < 1e-4, position


@pytest.mark.parametrize("kind", ["gemma2", "mistral"])
@pytest.mark.parametrize(("given", "expected"), [({}, 4096), ({"sliding_window": None}, 0)])
def test_a_config_without_a_window_has_that_of_transformers(
    kind: str, given: dict[str, Any], expected: int
) -> None:
    import transformers

    config = transformers.AutoConfig.for_model(kind, **given)
    assert (config.sliding_window or 0) == expected
    description, _ = describe(Config("test", {"model_type": kind, **SIZES, **given}), ())
    assert description.layers[0].window == expected


def test_every_architecture_is_tested() -> None:
    assert {kind for kind, _ in MODELS.values()} == set(known_architectures())


def test_a_tied_embedding_that_the_files_call_the_head(tmp_path: Path) -> None:
    """Of tensors that are shared, safetensors keeps the name that is first in the alphabet."""
    model = save(tmp_path, "llama", tie_word_embeddings=True)
    path = tmp_path / "model.safetensors"
    weights = safetensors.numpy.load_file(path)
    weights["lm_head.weight"] = weights.pop("model.embed_tokens.weight")
    safetensors.numpy.save_file(weights, path, {"format": "pt"})
    made = Decoder(tmp_path, model, bits=4)
    assert "lm_head.weight" in made.quantised
    machine = Machine(made.step, empty_state(made.specs))
    for position, token in enumerate(made.tokens):
        assert distance(machine.run([token], [position])[0], made.logits[position]) < 1e-2
    streamed = make_model(read_folder(tmp_path), {})
    whole = type(model).from_pretrained(tmp_path).eval()
    tokens = made.tokens.tolist()
    assert distance(logits_of(streamed, tokens), logits_of(whole, tokens)) < 1e-4
