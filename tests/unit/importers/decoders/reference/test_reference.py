"""The reference with a part of its weights in memory has the numbers of transformers' whole model."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from host.importers.decoders.architectures import describe
from host.importers.decoders.constants import Constants
from host.importers.decoders.folder import ModelFolder, read_folder
from host.importers.decoders.quantise import QuantisedPart
from host.importers.decoders.reference import Asked, Questions, child, input_energies
from host.importers.decoders.reference import model as streamed
from host.importers.decoders.reference.child import computed, logits_of
from host.importers.decoders.reference.model import make_model, parameter_named
from host.importers.decoders.reference.process import time_limit_s
from host.importers.decoders.reference.questions import read_plan, write_plan
from host.importers.decoders.reference.stored import StoredPart
from host.model.text_quality import divergence
from tests.unit.importers.decoders.models import save
from tests.unit.importers.decoders.references import MODELS, place_and_run

TOKENS = np.random.default_rng(3).integers(0, 128, 40)


def parts_of(read: ModelFolder, bits: int) -> list[QuantisedPart]:
    """The matrices of a folder in a number of bits."""
    _, weights = describe(read.config, read.weights)
    return list(Constants(read, bits, 48).quantised_parts(read.with_own_head(weights)))


def quantised_llama(tmp_path: Path, **fields: Any) -> tuple[ModelFolder, Path, list[QuantisedPart]]:
    """A Llama, a folder for what is asked about it, and its weights of four bits."""
    folder, directory = tmp_path / "model", tmp_path / "plan"
    directory.mkdir()
    save(folder, "llama", **fields)
    read = read_folder(folder)
    return read, directory, parts_of(read, 4)


def by_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every matrix of a linear module multiplied in blocks of its rows."""
    monkeypatch.setattr(streamed, "_BLOCK", 64 * 20)


@pytest.mark.parametrize("name", MODELS)
def test_every_architecture_has_the_logits_of_the_whole_model(name: str, tmp_path: Path) -> None:
    kind, fields = MODELS[name]
    whole = save(tmp_path, kind, **fields)
    wanted = logits_of(whole, TOKENS.tolist())
    for kept in (0, 10_000, 1 << 30):
        model = make_model(read_folder(tmp_path), {}, kept=kept)
        for _ in range(2):
            np.testing.assert_array_equal(logits_of(model, TOKENS.tolist()), wanted)


def in_memory(model: Any) -> int:
    """Elements of parameters that have values."""
    return sum(one.numel() for one in model.parameters() if one.device.type != "meta")


def test_weights_are_in_memory_while_their_module_computes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_blocks(monkeypatch)
    whole = save(tmp_path, "llama")
    model = make_model(read_folder(tmp_path), {})
    most: list[int] = []
    for module in model.modules():
        module.register_forward_pre_hook(lambda *_: most.append(in_memory(model)))
    np.testing.assert_allclose(
        logits_of(model, TOKENS.tolist()), logits_of(whole, TOKENS.tolist()), rtol=0, atol=1e-4
    )
    # A linear module of more than a block has no weight at all.
    assert 0 < max(most) <= 128 * 64 // 2 and in_memory(model) == 0


def asked(read: ModelFolder, directory: Path, parts: Sequence[QuantisedPart], **others: Any) -> Any:
    """The answers of a plan that went through its files."""
    write_plan(directory, read.path, Questions((TOKENS[:24], TOKENS), **others), parts)
    return computed(read_plan(directory))


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("name", ["llama-tied-biased", "phi3", "gemma", "gpt2"])
def test_quantised_weights_replace_those_of_the_files(
    name: str, bits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_blocks(monkeypatch)
    kind, fields = MODELS[name]
    folder, directory = tmp_path / "model", tmp_path / "plan"
    directory.mkdir()
    whole = save(folder, kind, **fields)
    read = read_folder(folder)
    parts = parts_of(read, bits)
    original = logits_of(whole, TOKENS.tolist())
    answers = asked(read, directory, parts, text=TOKENS, prompt=5, count=6)
    np.testing.assert_allclose(answers.original, original, rtol=0, atol=1e-4)
    wanted = place_and_run(whole, TOKENS.tolist(), parts)
    assert np.abs(wanted - original).max() > 2e-3
    np.testing.assert_allclose(answers.logits[0], wanted[:24], rtol=0, atol=1e-4)
    np.testing.assert_allclose(answers.logits[1], wanted, rtol=0, atol=1e-4)
    np.testing.assert_allclose(answers.text, wanted, rtol=0, atol=1e-4)
    written = TOKENS[:5].tolist()
    for token in answers.greedy:
        assert token == logits_of(whole, written)[-1].argmax()
        written.append(token)
    assert len(written) == 11


def test_matrices_in_half_precision(tmp_path: Path) -> None:
    folder, directory = tmp_path / "model", tmp_path / "plan"
    directory.mkdir()
    whole = save(folder, "qwen3")
    before = logits_of(whole, TOKENS.tolist())
    answers = asked(read_folder(folder), directory, (), halves=True)
    for matrix in (one.data for one in whole.parameters() if one.dim() > 1):
        matrix.copy_(matrix.half().float())
    wanted = logits_of(whole, TOKENS.tolist())
    np.testing.assert_array_equal(answers.logits[1], wanted)
    assert answers.half_spread == np.abs(before - wanted).max() / np.abs(before).max() > 0


@pytest.mark.parametrize("name", ["llama", "gemma", "gpt2"])
def test_mean_squares_of_inputs_are_those_of_the_whole_model(name: str, tmp_path: Path) -> None:
    kind, fields = MODELS[name]
    whole = save(tmp_path, kind, **fields)
    read = read_folder(tmp_path)
    _, weights = describe(read.config, read.weights)
    weights = read.with_own_head(weights)
    names = [part.name for product in weights.products() for part in product.parts]
    found = input_energies(tmp_path, [TOKENS[:16], TOKENS[16:]], names)
    # The table of an embedding multiplies where it is the head.
    tied = weights.head == weights.embedding
    assert set(found) == set(names) - (set() if tied else {weights.embedding.parts[0].name})
    inputs: dict[str, list[np.ndarray]] = {one: [] for one in found}
    parameters = dict(whole.named_parameters(remove_duplicate=False))
    for one, rows in inputs.items():
        key = parameter_named(parameters, one)
        key = "lm_head.weight" if parameters[key] is parameters["lm_head.weight"] else key
        module = whole.get_submodule(key.rpartition(".")[0])
        module.register_forward_pre_hook(lambda _, given, rows=rows: rows.append(given[0][0].numpy()))
    for piece in (TOKENS[:16], TOKENS[16:]):
        logits_of(whole, piece.tolist())
    for one, rows in inputs.items():
        np.testing.assert_allclose(found[one], (np.concatenate(rows) ** 2).mean(axis=0), rtol=1e-4)


def test_less_is_lost_where_channels_stand_out(tmp_path: Path) -> None:
    import torch

    whole = save(tmp_path, "llama", initializer_range=0.08)
    with torch.no_grad():
        for name, parameter in whole.named_parameters():
            if "norm" in name:
                parameter[:3] *= 20
    whole.save_pretrained(tmp_path)
    read = read_folder(tmp_path)
    _, weights = describe(read.config, read.weights)
    names = [part.name for product in weights.products() for part in product.parts]
    text = np.random.default_rng(5).integers(0, 128, 60)
    importance = input_energies(tmp_path, [text], names)
    exact = logits_of(whole, TOKENS.tolist())
    lost = []
    for given in ({}, importance):
        parts = list(Constants(read, 4, 48, importance=given).quantised_parts(weights))
        lost.append(divergence(exact, place_and_run(whole, TOKENS.tolist(), parts)))
    assert 0 < lost[1] < 0.8 * lost[0]


def test_a_file_without_a_weight_of_the_model_is_refused(tmp_path: Path) -> None:
    save(tmp_path, "llama")
    read = read_folder(tmp_path)
    less = {name: one for name, one in read.weights.items() if "layers.1.mlp.up" not in name}
    vars(read)["weights"] = less
    with pytest.raises(ValueError, match=r"the file has no .*layers\.1\.mlp\.up_proj\.weight"):
        make_model(read, {})


def reads(monkeypatch: pytest.MonkeyPatch, kind: type) -> Counter[str]:
    """Count how often each matrix of a kind is read as a whole."""
    count: Counter[str] = Counter()
    read = kind.read  # type: ignore[attr-defined]

    def counted(self: Any, name: str) -> np.ndarray:
        count[name] += len(self.shape) > 1
        return np.asarray(read(self, name))

    monkeypatch.setattr(kind, "read", counted)
    return count


def test_a_continuation_keeps_weights_where_memory_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, directory, parts = quantised_llama(tmp_path)
    monkeypatch.setattr(child, "_KEPT_BYTES", 0)
    most: dict[int, int] = {}
    for free in (0, 1 << 30):
        monkeypatch.setattr(child, "free_bytes", lambda free=free: free)
        with monkeypatch.context() as own:
            count = reads(own, StoredPart)
            answers = asked(read, directory, parts, text=TOKENS, prompt=5, count=6)
        assert len(answers.greedy) == 6
        most[free] = max(count.values())
    # Three texts and six steps; or once.
    assert most == {0: 9, 1 << 30: 1}


def test_without_a_continuation_little_is_kept_whatever_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "free_bytes", lambda: 1 << 40)
    assert child.kept_bytes(1 << 29, 0) == 1 << 29
    assert child.kept_bytes(1 << 29, 64) == 1 << 39
    monkeypatch.setattr(child, "free_bytes", lambda: None)
    assert child.kept_bytes(1 << 29, 64) == 1 << 29


def test_the_time_limit_grows_with_the_weights_and_the_passes(tmp_path: Path) -> None:
    path = tmp_path / "model-1.safetensors"
    path.touch()
    once, often = Questions((TOKENS,)), Questions((TOKENS,), count=64)
    judged = Questions((TOKENS,), judged=Asked(TOKENS[None], (), 1e-2))
    assert time_limit_s(tmp_path, often) == 1800.0
    # Of 8 billion weights in bfloat16; nothing is written.
    os.truncate(path, 16 * 10**9)
    assert time_limit_s(tmp_path, once) == 1800.0 + 3 * 320
    assert time_limit_s(tmp_path, judged) == 1800.0 + 11 * 320
    assert time_limit_s(tmp_path, often) == time_limit_s(path, often) == 1800.0 + 67 * 320


def test_a_buffer_that_nothing_initialises_is_no_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import LlamaForCausalLM

    save(tmp_path, "llama")
    made = make_model(read_folder(tmp_path), {})
    assert all(one.isfinite().all() for one in made.buffers()) and list(made.buffers())
    monkeypatch.setattr(LlamaForCausalLM, "_init_weights", lambda self, module: None)
    assert all(one.isnan().all() for one in make_model(read_folder(tmp_path), {}).buffers())
