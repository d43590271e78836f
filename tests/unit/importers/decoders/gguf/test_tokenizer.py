"""The tokenizer of a GGUF file gives the tokens that the model's own gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

from host.importers.decoders.config import Config
from host.importers.decoders.gguf.model import read_gguf
from host.importers.decoders.gguf.tokenizer import make_tokenizer
from tests.unit.importers.decoders.gguf.test_header import whole_file

TEXTS = ["the cat's 1234 hats, the cats", "a  b\n\n c<|end|>the hat", "naïve Ünïcode 12"]
LLAMA = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)


def trained(splitting: Any) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = splitting
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<s>", "<|end|>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS * 4, trainer)
    return tokenizer


def values_of(tokenizer: Tokenizer, pre: str) -> dict[str, Any]:
    numbers = tokenizer.get_vocab()
    tokens = sorted(numbers, key=lambda token: numbers[token])
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if number < 2 else 1 for number in range(len(tokens))],
        "tokenizer.ggml.merges": [one if isinstance(one, str) else " ".join(one) for one in merges],
    }


def made(values: dict[str, Any]) -> Tokenizer:
    content, reason = make_tokenizer(Config("test", values))
    assert content is not None and not reason, reason
    return Tokenizer.from_str(content.decode())


def llama_splitting() -> Any:
    split = pre_tokenizers.Split(Regex(LLAMA), "isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def test_tokens_and_texts_are_those_of_the_model() -> None:
    gpt = trained(pre_tokenizers.ByteLevel(add_prefix_space=False))
    for own, pre in ((gpt, "gpt-2"), (trained(llama_splitting()), "llama-bpe")):
        values = {**values_of(own, pre), "tokenizer.ggml.add_bos_token": False}
        found = made(values)
        for text in TEXTS:
            assert found.encode(text).ids == own.encode(text).ids
            assert found.decode(found.encode(text).ids, skip_special_tokens=False) == text


def test_digits_are_split_as_the_model_was_trained() -> None:
    values = values_of(trained(llama_splitting()), "qwen2")
    assert "123" in values["tokenizer.ggml.tokens"]
    assert "123" in made({**values, "tokenizer.ggml.pre": "gpt-2"}).encode("1234").tokens[0]
    for pre in ("qwen2", "smollm"):
        assert made({**values, "tokenizer.ggml.pre": pre}).encode("12 3").tokens[-1] == "3"
        assert made({**values, "tokenizer.ggml.pre": pre}).encode("1234").tokens == ["1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("pre", "parts"),
    [
        ("gpt-4o", ["Hello", "World's", " ", "123", "4", "/x"]),
        ("tekken", ["Hello", "World", "'s", " ", "1", "2", "3", "4", "/x"]),
        ("dbrx", ["HelloWorld", "'s", " ", "123", "4", "/x"]),
        ("smaug-bpe", ["HelloWorld", "'s", " ", "123", "4", "/x"]),
    ],
)
def test_words_are_split_as_the_model_was_trained(pre: str, parts: list[str]) -> None:
    values = {**values_of(trained(llama_splitting()), pre), "tokenizer.ggml.add_bos_token": False}
    found = made(values).pre_tokenizer.pre_tokenize_str("HelloWorld's 1234/x")
    assert [part.replace("\u0120", " ") for part, _ in found] == parts
    # A word that is a token is not put together of its merges where the model was trained so.
    assert json.loads(made(values).to_str())["model"]["ignore_merges"] is (pre == "tekken")


def test_other_names_of_the_same_splitting_are_known() -> None:
    values = {**values_of(trained(llama_splitting()), "llama-bpe"), "tokenizer.ggml.bos_token_id": 0}
    usual = made(values).to_str()
    assert made({**values, "tokenizer.ggml.pre": "llama-v3"}).to_str() == usual
    other = made({**values, "tokenizer.ggml.pre": "deepseek-r1-qwen"}).to_str()
    assert other == made({**values, "tokenizer.ggml.pre": "qwen2"}).to_str() != usual


def test_a_text_begins_with_the_token_that_the_file_says() -> None:
    values = {**values_of(trained(llama_splitting()), "llama-bpe"), "tokenizer.ggml.bos_token_id": 0}
    assert made(values).encode("the").ids[0] == 0
    assert made({**values, "tokenizer.ggml.add_bos_token": False}).encode("the").ids[0] != 0


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tokenizer.ggml.model": "t5"}, "of kind 't5' are not read"),
        ({"tokenizer.ggml.model": ["gpt2"]}, "are not read"),
        ({"tokenizer.ggml.pre": "falcon"}, "'falcon' is not known"),
        ({"tokenizer.ggml.pre": ["qwen2"]}, "is not known"),
        ({"tokenizer.ggml.tokens": ["a", "a"]}, "twice"),
        ({"tokenizer.ggml.tokens": 4}, "no tokens"),
        ({"tokenizer.ggml.merges": ["no such"]}, "merge"),
        ({"tokenizer.ggml.merges": [3]}, "no merges"),
        ({"tokenizer.ggml.token_type": []}, "no kinds"),
        ({"tokenizer.ggml.add_bos_token": True}, "begins a text"),
    ],
)
def test_there_is_none_where_something_is_not_known(changes: dict[str, Any], reason: str) -> None:
    values = values_of(trained(pre_tokenizers.ByteLevel(add_prefix_space=False)), "gpt-2")
    content, found = make_tokenizer(Config("test", {**values, **changes}))
    assert content is None and reason in found


def test_a_file_beside_the_model_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    whole_file(path)
    found = read_gguf(path)
    assert isinstance(found.tokenizer, bytes) and found.end_tokens == (3,) and found.notes == ()
    assert Tokenizer.from_str(found.tokenizer.decode()).encode("ab").ids == [3, 2]
    beside = tmp_path / "tokenizer.json"
    beside.write_text("{}")
    assert read_gguf(path).tokenizer == beside and beside in read_gguf(path).files()
