"""Rows of a batch are what a prefill and the steps behind it compute one after the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from host.importers.decoders.description import Matrix
from host.importers.decoders.quantise import QuantisedPart, dequantise, quantise
from host.importers.decoders.reference import (
    Asked,
    Judgement,
    Part,
    Questions,
    attention,
    rounding,
    side_by_side,
)
from host.importers.decoders.reference.child import computed, logits_of
from host.importers.decoders.reference.judgement import ATTENTION, CACHE, PRODUCTS
from host.importers.decoders.reference.questions import read_plan, write_plan
from host.importers.decoders.reference.rounding import as_bytes, as_halves, as_they_are
from host.importers.decoders.reference.side_by_side import Rows, Way, moved_by_halves, moved_by_ways
from tests.unit.importers.decoders.models import save
from tests.unit.importers.decoders.reference.test_reference import TOKENS, by_blocks, quantised_llama
from tests.unit.importers.decoders.references import MODELS

TEXTS = np.stack([TOKENS[:20], TOKENS[20:40]]).astype(np.int32)


def same(values: Any) -> Any:
    return values


@pytest.mark.parametrize("name", MODELS)
def test_rows_without_rounding_are_those_of_the_architecture(name: str, tmp_path: Path) -> None:
    """Windows, scales, caps and shared keys: the attention in place of transformers' has them all."""
    kind, fields = MODELS[name]
    whole = save(tmp_path, kind, **fields)
    exact = np.stack([logits_of(whole, text.tolist()) for text in TEXTS])
    seen: list[np.ndarray] = []
    head = whole.get_output_embeddings()
    kept = head.register_forward_hook(lambda _, given, made: seen.append(made.numpy().copy()))
    (moved,) = moved_by_ways(
        whole, TEXTS, [Way(frozenset(), False, as_they_are)], [], tiles=False, cached=as_they_are
    )
    kept.remove()
    assert moved.shape == (2, 20) and moved.max() < 1e-5
    cap = getattr(whole.config, "final_logit_softcapping", None)
    rows = seen[0] if cap is None else cap * np.tanh(seen[0] / cap)
    np.testing.assert_allclose(rows[:2], exact, rtol=0, atol=2e-5 * np.abs(exact).max())
    # The model is as it was.
    np.testing.assert_array_equal(logits_of(whole, TEXTS[0].tolist()), exact[0])
    assert "forward" not in vars(head)


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt2"])
def test_a_place_is_a_step_behind_the_prompt_before_it(name: str, tmp_path: Path) -> None:
    """Of one layer: what its own keys are of is not changed by those before it."""
    kind, fields = MODELS[name]
    fields = {**fields, **({"n_layer": 1} if kind == "gpt2" else {"num_hidden_layers": 1})}
    fields.pop("layer_types", None)
    whole = save(tmp_path, kind, **fields)
    exact = [logits_of(whole, text.tolist()) for text in TEXTS]

    def coarse(values: Any) -> Any:
        return (values * 4).round() / 4

    (moved,) = moved_by_ways(whole, TEXTS, [Way(frozenset(), False, coarse)], [], tiles=False, cached=same)
    for number, text in enumerate(TEXTS):
        for beginning in (1, 7, 19):
            # The step's own keys and values are rounded too.
            seen = stepwise_own(whole, text, beginning, coarse)
            wanted = np.abs(seen - exact[number][beginning]).max() / np.abs(exact[number][beginning]).max()
            assert wanted > 1e-3 and moved[number, beginning] == pytest.approx(wanted, rel=1e-2, abs=1e-5)


def stepwise_own(whole: Any, text: np.ndarray, beginning: int, change: Callable[[Any], Any]) -> np.ndarray:
    """The logits of a step by a cache that changes all that it is given."""
    from transformers import DynamicCache

    class Changed(DynamicCache):  # type: ignore[misc]
        def update(self, keys: Any, values: Any, *others: Any, **named: Any) -> Any:
            return super().update(change(keys), change(values), *others, **named)

    with torch.inference_mode():
        cache = Changed(config=whole.config)
        for part in (text[:beginning], text[beginning : beginning + 1]):
            made = whole(input_ids=torch.tensor([part.tolist()]), past_key_values=cache, use_cache=True)
    return np.asarray(made.logits[0, -1].numpy())


def stored(part: QuantisedPart, directory: Path) -> Any:
    """A quantised matrix as it lies in a plan."""
    write_plan(directory, directory, Questions((TOKENS,)), [part])
    [one] = read_plan(directory).parts
    return one


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("group", "asymmetry"), [(16, ""), (32, ""), (32, "zero"), (32, "minimum")])
def test_products_of_tiles_round_both_operands(
    group: int, asymmetry: str, transposed: bool, tmp_path: Path
) -> None:
    random = np.random.default_rng(4)
    exact = random.normal(size=(12, 64)).astype("float32")
    given = torch.from_numpy(random.normal(size=(3, 3, 64)).astype("float32"))
    made = quantise(exact, 4, asymmetry=asymmetry)
    made = dataclasses.replace(made, form=dataclasses.replace(made.form, group=group))
    part = stored(QuantisedPart(Matrix("weight", 12, 64, transposed), made), tmp_path)
    module = torch.nn.Linear(64, 12)
    values = torch.from_numpy(np.array(dequantise(made)))
    module.weight.data.copy_(values)
    way = Way(frozenset({"weight"}), False, as_they_are)
    with torch.inference_mode():
        plain, bias = module(given), module.bias
        in_rows = {}
        for tiles in (False, True):
            with side_by_side._products([(module, part)], Rows(1, 1), [way], None, tiles=tiles):
                in_rows[tiles] = module(given)
        assert torch.equal(module(given), plain)
        both = given.bfloat16().float() @ values.bfloat16().float().T + bias
        # Groups that are no whole rows of a tile are products of bytes there too, and weights with zero
        # points or minima are rounded more than once in tiles.
        wanted = both if group == 32 and not asymmetry else in_rows[False]
    torch.testing.assert_close(in_rows[True][1], wanted[1], rtol=0, atol=1e-5)
    for made_rows in in_rows.values():
        torch.testing.assert_close(made_rows[0], plain[0], rtol=0, atol=1e-5)
        # A step rounds to 16 bits.
        off = (made_rows[2] - plain[2]).abs().max()
        assert 0 < off < 2e-3 and (made_rows[1] - plain[1]).abs().max() > 3 * off
    assert not torch.allclose(both, in_rows[False], atol=1e-3)


@pytest.mark.parametrize("cap", [None, 3.0])
def test_attention_rounds_queries_keys_powers_and_values(cap: float | None) -> None:
    draw = np.random.default_rng(4)
    query, key, value = (
        draw.normal(size=(1, heads, places, 16)).astype("float32")
        for heads, places in ((4, 3), (2, 7), (2, 7))
    )
    mask = np.where(np.arange(7) <= np.arange(3)[:, None] + 4, 0, np.finfo(np.float32).min)
    mask = mask.astype("float32")[None, None]
    queries, *pair, masks = (torch.from_numpy(one) for one in (query, key, value, mask))
    made = attention.attention(queries, pair[0], pair[1], masks, 0.3, cap, bfloat16=True)

    def bits(values: np.ndarray) -> np.ndarray:
        return values.astype(ml_dtypes.bfloat16).astype("float64")

    keys, values = (bits(one)[0].repeat(2, axis=0) for one in (key, value))
    scores = np.einsum("htd,hcd->htc", bits(query)[0], keys) * 0.3
    scores = scores if cap is None else cap * np.tanh(scores / cap)
    powers = np.exp(scores + mask[0] - (scores + mask[0]).max(axis=-1, keepdims=True))
    wanted = np.einsum("htc,hcd->htd", bits(powers), values) / powers.sum(axis=-1)[..., None]
    np.testing.assert_allclose(made[0].numpy(), wanted, rtol=0, atol=1e-5)


def test_attention_that_cannot_be_replaced_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = save(tmp_path, "llama")
    monkeypatch.setattr(type(whole), "_can_set_attn_implementation", classmethod(lambda _: False))
    with (
        pytest.raises(ValueError, match="the attention of LlamaForCausalLM cannot be replaced"),
        attention.replaced_attention(whole, lambda *_: None),
    ):
        pass


def test_blocks_of_a_weight_make_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for small in (False, True):
        with monkeypatch.context() as own:
            if small:
                by_blocks(own)
            (tmp_path / str(small)).mkdir()
            read, directory, parts = quantised_llama(tmp_path / str(small))
            found.append(asked_of(read, directory, parts, allowed=0.0))
    assert found[0].all == pytest.approx(found[1].all, rel=1e-2)
    assert found[0].alone == pytest.approx(found[1].alone, rel=1e-2)


def asked_of(read: Any, directory: Path, parts: Any, *, allowed: float, **others: Any) -> Judgement:
    """What is found about the products of the feed-forward part, attention and the cache."""
    names = tuple(one.matrix.name for one in parts if "mlp" in one.matrix.name)
    of_program = (
        Part(PRODUCTS, "feed", 1.0, names),
        Part(ATTENTION, "attention", 1.0),
        Part(CACHE, "cache", 1.0),
    )
    questions = Questions((TOKENS,), judged=Asked(TEXTS, of_program, allowed, **others))
    write_plan(directory, read.path, questions, parts)
    judgement = computed(read_plan(directory)).judgement
    assert judgement is not None
    return judgement


def test_parts_move_logits_by_themselves(tmp_path: Path) -> None:
    read, directory, parts = quantised_llama(tmp_path)
    in_bytes, in_tiles = (
        asked_of(read, directory, parts, allowed=1e-9, tiles=tiles) for tiles in (False, True)
    )
    feed, attended, cache = in_bytes.alone
    assert in_bytes.rounded == () and 1e-5 < in_bytes.left < 1e-3
    assert 1e-4 < cache < 1e-2 and cache < attended < 5e-2 and feed < in_bytes.all < 0.2
    # Registers of matrices round less than bytes, and the rest alike.
    assert in_tiles.alone[0] < feed and in_tiles.alone[1:] == in_bytes.alone[1:]
    every = asked_of(read, directory, parts, allowed=1.0)
    assert every.rounded == (0, 1, 2) and every.alone == () and every.all == in_bytes.all


@pytest.mark.parametrize("tied", [True, False])
def test_a_head_is_multiplied_as_steps_do(tied: bool, tmp_path: Path) -> None:
    read, directory, parts = quantised_llama(tmp_path, tie_word_embeddings=tied)
    name = "model.embed_tokens.weight" if tied else "lm_head.weight"
    alone = [one for one in parts if one.matrix.name == name]
    assert len(alone) == 1
    assert 1e-6 < asked_of(read, directory, alone, allowed=0.0).left < 1e-3


def test_a_head_of_its_own_beside_a_configuration_that_ties_it(tmp_path: Path) -> None:
    read, directory, parts = quantised_llama(tmp_path, tie_word_embeddings=False)
    apart = asked_of(read, directory, parts, allowed=0.0)
    config = read.path / "config.json"
    said = config.read_text()
    assert said.count('"tie_word_embeddings": false') == 1
    config.write_text(said.replace('"tie_word_embeddings": false', '"tie_word_embeddings": true'))
    tied = asked_of(read, directory, parts, allowed=0.0)
    assert tied.all == pytest.approx(apart.all) and tied.alone == pytest.approx(apart.alone)


def test_exact_rows_have_a_cache_of_bytes_where_the_program_has(tmp_path: Path) -> None:
    whole = save(tmp_path, "llama")
    (moved,) = moved_by_ways(
        whole, TEXTS, [Way(frozenset(), False, as_bytes)], [], tiles=False, cached=as_bytes
    )
    (against_floats,) = moved_by_ways(
        whole, TEXTS, [Way(frozenset(), False, as_bytes)], [], tiles=False, cached=as_they_are
    )
    assert moved.max() < 1e-5 < 1e-3 < against_floats.max()


def test_a_large_vocabulary_has_fewer_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = save(tmp_path, "llama")
    way = [Way(frozenset(), False, as_halves)]
    (every,) = moved_by_ways(whole, TEXTS, way, [], tiles=False, cached=same)
    monkeypatch.setattr(side_by_side, "_MOST_LOGITS", 128 * 4 * 5)
    (some,) = moved_by_ways(whole, TEXTS, way, [], tiles=False, cached=same)
    # The first and the last are among them.
    places = np.array([0, 5, 10, 14, 19])
    np.testing.assert_allclose(some, every[:, places], rtol=1e-3)
    monkeypatch.setattr(side_by_side, "_MOST_LOGITS", 1)
    (one,) = moved_by_ways(whole, TEXTS, way, [], tiles=False, cached=same)
    # A single one is the last, behind the longest prompt.
    np.testing.assert_allclose(one, every[:, -1:], rtol=1e-3)


def test_activations_of_groups_in_another_order_are_rounded_by_their_groups(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    order = draw.permutation(64).astype(np.int32)
    made = quantise(draw.normal(size=(12, 64)).astype("float32"), 4)
    part = stored(QuantisedPart(Matrix("weight", 12, 64), made, order), tmp_path)
    given = draw.normal(size=(2, 64)).astype("float32") * np.where(order.argsort() < 32, 1.0, 100.0).astype(
        "float32"
    )
    found = rounding.rounded(torch.from_numpy(given), part, rounding.BYTES).numpy()
    small = order.argsort() < 32
    # A large neighbour in the row would take all bits of the small ones.
    assert np.abs(found - given)[:, small].max() < 0.02 and 0.02 < np.abs(found - given)[:, ~small].max() < 2


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt2"])
def test_halves_between_kernels_move_logits_further_than_those_of_the_cache(
    name: str, tmp_path: Path
) -> None:
    kind, fields = MODELS[name]
    whole = save(tmp_path, kind, **fields)
    exact = logits_of(whole, TEXTS[0].tolist())
    asked = [(False, False), (True, False), (True, True)]
    cache, between, sums = (moved_by_halves(whole, TEXTS, *one) for one in asked)
    assert 0 < np.median(cache) < np.median(between) < np.median(sums) < 10 * np.median(between) < 0.2
    # The model is as it was.
    np.testing.assert_array_equal(logits_of(whole, TEXTS[0].tolist()), exact)
