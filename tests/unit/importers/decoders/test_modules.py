"""Quantised products, and the prefill beside the steps."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from host.importers.decoders.reference.roundings import Roundings
from tests.decoders.operations import Machine, empty_state
from tests.unit.importers.decoders.models import save
from tests.unit.importers.decoders.references import CHUNK, MODELS, TEXTS, Decoder, distance

# Keys and values lie in half precision beside quantised weights: the spread of their golden cases.
_HALVES = 5e-3


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("name", ["llama-tied-biased", "phi3", "gpt2-by-layer"])
def test_quantised_logits_are_those_of_the_dequantised_weights(name: str, bits: int, tmp_path: Path) -> None:
    kind, fields = MODELS[name]
    made = Decoder(tmp_path, save(tmp_path, kind, **fields), bits)
    machine = Machine(made.step, empty_state(made.specs))
    for position, token in enumerate(made.tokens[:12]):
        logits = machine.run([token], [position])
        assert distance(logits[0], made.logits[position]) < _HALVES, position
    assert not any("norm" in one or "ln_" in one or "wpe" in one for one in made.quantised)
    if name == "gpt2-by-layer":  # its product of 80 inputs has no whole groups
        assert "transformer.h.0.mlp.c_fc.weight" in made.quantised
        assert "transformer.h.0.mlp.c_proj.weight" not in made.quantised


@pytest.mark.parametrize("bits", [8, 4])
def test_groups_are_as_asked_for_where_inputs_are_whole_groups(bits: int, tmp_path: Path) -> None:
    model = save(tmp_path, "llama", hidden_size=128, intermediate_size=192)
    made = Decoder(tmp_path, model, bits, group=128)
    assert made.blocks == {128: 128, 192: 64}
    machine = Machine(made.step, empty_state(made.specs))
    for position, token in enumerate(made.tokens[:4]):
        assert distance(machine.run([token], [position])[0], made.logits[position]) < _HALVES, position


def check(made: Decoder) -> None:
    machine = Machine(made.step, empty_state(made.specs))
    for position, token in enumerate(made.tokens[:6]):
        assert distance(machine.run([token], [position])[0], made.logits[position]) < _HALVES, position


def test_a_head_of_its_own_is_not_tied(tmp_path: Path) -> None:
    """Transformers ties a head to the embedding only where the files do not say otherwise."""
    for head in ("own", "equal"):
        folder = tmp_path / head
        model = save(folder, "llama")
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
        if head == "equal":
            weights = safetensors.numpy.load_file(folder / "model.safetensors")
            weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
            safetensors.numpy.save_file(weights, folder / "model.safetensors")
            model.lm_head.weight = model.model.embed_tokens.weight
        made = Decoder(folder, model, 8)
        assert ("lm_head.weight" in made.quantised) == (head == "own")
        check(made)


def test_files_without_the_name_of_the_body(tmp_path: Path) -> None:
    kind, fields = MODELS["gpt2"]
    model = save(tmp_path, kind, **fields)
    weights = safetensors.numpy.load_file(tmp_path / "model.safetensors")
    renamed = {name.removeprefix("transformer."): value for name, value in weights.items()}
    safetensors.numpy.save_file(renamed, tmp_path / "model.safetensors")
    check(Decoder(tmp_path, model, 8))


@pytest.mark.parametrize("name", ["qwen3", "gemma3"])
def test_prefill_with_padding_is_the_steps_one_by_one(name: str, tmp_path: Path) -> None:
    kind, fields = MODELS[name]
    made = Decoder(tmp_path, save(tmp_path, kind, **fields))
    state = empty_state(made.specs)
    step, prefill = Machine(made.step, state), Machine(made.prefill, state)
    begin = 0
    for count in (8, 3, 1, 8, 5):
        chunk = np.zeros(CHUNK, np.int32)
        chunk[:count] = made.tokens[begin : begin + count]
        logits = prefill.run(chunk, [begin], [count - 1])
        begin += count
        assert distance(logits[0], made.logits[begin - 1]) < 1e-4
        # A step goes on where the padding lies.
        logits = step.run([made.tokens[begin]], [begin])
        assert distance(logits[0], made.logits[begin]) < 1e-4
        begin += 1


@pytest.mark.parametrize("name", ["gemma3", "mistral"])
def test_a_chunk_may_be_longer_than_a_window(name: str, tmp_path: Path) -> None:
    """Of 24 tokens, where 9 or 12 are seen: behind a shorter one, and at the end of the context."""
    kind, fields = MODELS[name]
    made = Decoder(tmp_path, save(tmp_path, kind, **fields), chunk=24)
    prefill = Machine(made.prefill, empty_state(made.specs))
    for begin, count in ((0, 17), (17, 24), (24, 20)):
        chunk = np.zeros(24, np.int32)
        chunk[:count] = made.tokens[begin : begin + count]
        logits = prefill.run(chunk, [begin], [count - 1])
        assert distance(logits[0], made.logits[begin + count - 1]) < 1e-4


def test_a_prefill_that_rounds_is_for_keys_and_values_alone(tmp_path: Path) -> None:
    kind, fields = MODELS["qwen3"]
    made = Decoder(tmp_path, save(tmp_path, kind, **fields), roundings=Roundings(products=True))
    state = empty_state(made.specs)
    [attended] = Machine(made.prefill, state).run(made.tokens[:CHUNK], [0], [CHUNK - 1])
    heads = made.description.heads * made.description.head_size
    assert attended.shape == (heads,)
    logits = Machine(made.step, state).run([made.tokens[CHUNK]], [CHUNK])
    assert distance(logits[0], made.logits[CHUNK]) < 1e-4


@pytest.mark.parametrize("name", ["gemma3", "gpt2"])
def test_a_token_of_each_text_at_once_is_the_steps_one_by_one(name: str, tmp_path: Path) -> None:
    kind, fields = MODELS[name]
    made = Decoder(tmp_path, save(tmp_path, kind, **fields))
    states = [empty_state(made.specs) for _ in range(TEXTS)]
    together = Machine(made.together, [tensor for state in states for tensor in state])
    # Every text is at another place of the same tokens.
    places = [0, 7, 19]
    for place, state in zip(places, states, strict=True):
        alone = Machine(made.step, state)
        for position in range(place):
            alone.run([made.tokens[position]], [position])
    for step in range(4):
        positions = [place + step for place in places]
        logits = together.run(made.tokens[positions], positions)
        for row, position in enumerate(positions):
            assert distance(logits[row], made.logits[position]) < 1e-4
