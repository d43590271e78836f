"""The reference with a part of its weights in memory has the numbers of transformers' whole model."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from host.importers.decoders.architectures import describe
from host.importers.decoders.constants import Constants
from host.importers.decoders.description import Matrix
from host.importers.decoders.folder import ModelFolder, read_folder
from host.importers.decoders.quantise import QuantisedPart, dequantise, quantise
from host.importers.decoders.reference import Questions, attention, child, input_energies, rounding
from host.importers.decoders.reference import model as streamed
from host.importers.decoders.reference.child import computed, logits_of
from host.importers.decoders.reference.model import make_model, parameter_named
from host.importers.decoders.reference.process import time_limit_s
from host.importers.decoders.reference.questions import moved, read_plan, write_plan
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
    assert time_limit_s(tmp_path, often) == 1800.0
    # Of 8 billion weights in bfloat16; nothing is written.
    os.truncate(path, 16 * 10**9)
    assert time_limit_s(tmp_path, once) == 1800.0 + 5 * 320
    assert time_limit_s(tmp_path, often) == time_limit_s(path, often) == 1800.0 + 69 * 320


@pytest.mark.parametrize("tied", [True, False])
def test_a_head_may_have_rounded_activations(tied: bool, tmp_path: Path) -> None:
    read, directory, parts = quantised_llama(tmp_path, tie_word_embeddings=tied)
    embedding = "model.embed_tokens.weight"
    head = embedding if tied else "lm_head.weight"
    assert head in {one.matrix.name for one in parts}
    # The head is in memory after the first text.
    answers = asked(read, directory, parts, rounded=((head,),), beginning=30, attended=True)
    exact = answers.logits[1][30:]
    assert answers.rounded.shape == exact.shape
    # Only the first 30 tokens are rounded, and a head writes no keys.
    np.testing.assert_allclose(answers.rounded, exact, rtol=0, atol=1e-4)
    # The others read keys and values of tokens whose attention rounded them to bfloat16.
    moved = np.abs(answers.attended - exact).max() / np.abs(exact).max()
    assert 1e-3 < moved < 5e-2
    assert asked(read, directory, parts, rounded=((head,),), beginning=30).attended is None
    # The first set that moves logits little enough is chosen, or the last.
    keys = "model.layers.0.self_attn.k_proj.weight"
    for allowed, chosen in ((1.0, 0), (1e-4, 1), (0.0, 1)):
        found = asked(read, directory, parts, rounded=((keys, head), (head,)), allowed=allowed, beginning=30)
        assert found.chosen == chosen
        off = np.abs(found.rounded - exact).max() / np.abs(exact).max()
        assert bool(off > 1e-4) is (chosen == 0)
    if not tied:
        with pytest.raises(ValueError, match=f"'{embedding}' multiplies nothing"):
            asked(read, directory, parts_of(read, 4), rounded=((embedding,),), beginning=30)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("group", "asymmetry"), [(16, ""), (32, ""), (32, "zero"), (32, "minimum")])
def test_products_of_tiles_round_both_operands(
    group: int, asymmetry: str, transposed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounding, "_BLOCK", 64 * 5)
    random = np.random.default_rng(4)
    exact = random.normal(size=(12, 64)).astype("float32")
    given = torch.from_numpy(random.normal(size=(1, 3, 64)).astype("float32"))
    made = quantise(exact, 4, asymmetry=asymmetry)
    made = replace(made, form=replace(made.form, group=group))
    part = QuantisedPart(Matrix("weight", 12, 64, transposed), made)
    write_plan(tmp_path, tmp_path, Questions((TOKENS,)), [part])
    [stored] = read_plan(tmp_path).parts
    module = torch.nn.Linear(64, 12)
    values = torch.from_numpy(np.array(dequantise(part.values)))
    module.weight.data.copy_(values)
    with torch.inference_mode():
        plain, bias = module(given), module.bias
        with rounding.rounded_products([(module, stored)], tiles=True):
            in_tiles = module(given)
        with rounding.rounded_products([(module, stored)], tiles=False):
            in_bytes = module(given)
        assert torch.equal(module(given), plain)
        both = given.bfloat16().float() @ values.bfloat16().float().T + bias
        # Groups that are no whole rows of a tile are products of bytes there too, and weights with zero
        # points or minima are rounded more than once in tiles.
        wanted = both if group == 32 and not asymmetry else in_bytes
    torch.testing.assert_close(in_tiles, wanted, rtol=0, atol=1e-5)
    assert not torch.allclose(in_tiles, plain, atol=1e-4) and not torch.allclose(both, in_bytes, atol=1e-3)


def test_keys_and_values_in_half_precision_move_logits_a_little(tmp_path: Path) -> None:
    read, directory, parts = quantised_llama(tmp_path)
    assert 1e-5 < asked(read, directory, parts, kept_halves=True).kept_spread < 1e-2
    assert asked(read, directory, parts).kept_spread == 0


def test_how_far_logits_move_is_of_the_largest_behind_the_same_token() -> None:
    exact = np.array([[9, 9], [1, -2], [100, 0], [0, 0]], np.float32)
    assert moved(exact, exact[1:] + np.array([[0.5, 0], [1, 0], [0, 0.125]])) == 0.25
    assert moved(exact, exact[1:] * np.nan) == moved(exact, None) == np.inf


def test_a_beginning_by_tiles_moves_logits_less_than_one_by_bytes(tmp_path: Path) -> None:
    read, directory, parts = quantised_llama(tmp_path)
    sets = (tuple(one.matrix.name for one in parts if "mlp" in one.matrix.name),)
    off = []
    for tiles in (False, True):
        found = asked(read, directory, parts, rounded=sets, beginning=30, tiles=tiles)
        off.append(moved(found.logits[1], found.rounded))
    assert 0 < off[1] < off[0]


@pytest.mark.parametrize("name", MODELS)
def test_attention_that_rounds_is_that_of_the_architecture(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, fields = MODELS[name]
    whole = save(tmp_path, kind, **fields)
    exact = logits_of(whole, TOKENS.tolist())
    with attention.rounded_attention(whole):
        moved = np.abs(logits_of(whole, TOKENS.tolist()) - exact).max() / np.abs(exact).max()
    assert 1e-4 < moved < 0.1
    # The same without the rounding has windows, scales and caps of its own, and so it is with the original.
    monkeypatch.setattr(attention, "in_bfloat16", lambda values: values)
    with attention.rounded_attention(whole):
        plain = logits_of(whole, TOKENS.tolist())
    np.testing.assert_allclose(plain, exact, rtol=0, atol=2e-5 * np.abs(exact).max())
    np.testing.assert_array_equal(logits_of(whole, TOKENS.tolist()), exact)


@pytest.mark.parametrize("cap", [None, 3.0])
def test_attention_rounds_queries_keys_powers_and_values(cap: float | None) -> None:
    import torch

    draw = np.random.default_rng(4)
    query, key, value = (
        draw.normal(size=(1, heads, places, 16)).astype("float32")
        for heads, places in ((4, 3), (2, 7), (2, 7))
    )
    mask = np.where(np.arange(7) <= np.arange(3)[:, None] + 4, 0, np.finfo(np.float32).min)
    mask = mask.astype("float32")[None, None]
    given = [torch.from_numpy(one) for one in (query, key, value, mask)]
    made, _ = attention.attend(None, *given, scaling=0.3, softcap=cap)

    def bits(values: np.ndarray) -> np.ndarray:
        return values.astype(ml_dtypes.bfloat16).astype("float64")

    keys, values = (bits(one)[0].repeat(2, axis=0) for one in (key, value))
    scores = np.einsum("htd,hcd->htc", bits(query)[0], keys) * 0.3
    scores = scores if cap is None else cap * np.tanh(scores / cap)
    powers = np.exp(scores + mask[0] - (scores + mask[0]).max(axis=-1, keepdims=True))
    wanted = np.einsum("htc,hcd->thd", bits(powers), values) / powers.sum(axis=-1).T[..., None]
    np.testing.assert_allclose(made[0].numpy(), wanted, rtol=0, atol=1e-5)


def test_attention_that_cannot_be_replaced_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = save(tmp_path, "llama")
    monkeypatch.setattr(type(whole), "_can_set_attn_implementation", classmethod(lambda _: False))
    with (
        pytest.raises(ValueError, match="the attention of LlamaForCausalLM cannot be replaced"),
        attention.rounded_attention(whole),
    ):
        pass


def test_a_buffer_that_nothing_initialises_is_no_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import LlamaForCausalLM

    save(tmp_path, "llama")
    made = make_model(read_folder(tmp_path), {})
    assert all(one.isfinite().all() for one in made.buffers()) and list(made.buffers())
    monkeypatch.setattr(LlamaForCausalLM, "_init_weights", lambda self, module: None)
    assert all(one.isnan().all() for one in make_model(read_folder(tmp_path), {}).buffers())
