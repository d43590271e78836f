"""Several texts of a language model at once, as an application generates them."""

from __future__ import annotations

import collections
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import device_agent.runtime as runtime
from device_agent.errors import AgentError
from device_agent.execute.virtual_machine import Entry, VirtualMachine
from tests import tiny_decoder as tiny
from tests.signing import reseal
from tests.tiny_bundle import write_tiny
from tests.tiny_tokenizer import WORDS, write_tokenizer

pytestmark = pytest.mark.usefixtures("trusted_here")
PROMPTS = [[3], [3, 1, 4, 2], [2, 9, 4, 11, 6], [3, 1, 4, 1, 5, 9], [9, 2, 6, 5, 3, 5, 8, 9, 7], [7, 7]]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: Any) -> Path:
    folder = tmp_path_factory.mktemp("several")
    return write_tiny(folder, write_tokenizer(folder / "words.json"), several=True)


@pytest.fixture
def model(bundle: Path) -> runtime.Model:
    return runtime.load(bundle)


@pytest.fixture
def calls(monkeypatch: Any) -> collections.Counter[str]:
    """Counts calls of the model's functions; `main` of the first text counts as `step`."""
    counts: collections.Counter[str] = collections.Counter()
    entry, bound = VirtualMachine.entry, VirtualMachine._bound

    def counted(function: Any, name: str) -> Any:
        def call() -> Any:
            counts[name] += 1
            return function()

        return call

    def counted_entry(self: VirtualMachine, name: str, *others: Any) -> Entry:
        made = entry(self, name, *others)
        return Entry(made.inputs, counted(made.invoke, "step" if name == "main" else name))

    monkeypatch.setattr(VirtualMachine, "entry", counted_entry)
    monkeypatch.setattr(VirtualMachine, "_bound", lambda self: counted(bound(self), "step"))
    return counts


def following(prompt: Sequence[int], count: int = 10**6) -> tuple[list[int], str]:
    """What follows a prompt, and why it ends."""
    tokens = list(prompt)
    while len(tokens) <= tiny.CONTEXT:
        if len(tokens) - len(prompt) == count:
            return tokens[len(prompt) :], "max_tokens"
        token = tiny.next_token(tokens)
        if token == tiny.END:
            return tokens[len(prompt) :], "end of text"
        tokens.append(token)
    return tokens[len(prompt) :], "the context of 32 tokens is full: a larger --context holds longer texts"


def by_text(texts: Any, count: int) -> list[list[Any]]:
    made: list[list[Any]] = [[] for _ in range(count)]
    for text, piece in texts:
        made[text].append(piece)
    return made


@pytest.mark.parametrize("count", [1, 2, 3, 6])
@pytest.mark.parametrize("most", [2, 5, 100])
def test_texts_are_those_that_are_made_one_by_one(model: runtime.Model, count: int, most: int) -> None:
    prompts = PROMPTS[:count]
    texts = model.generate_many(prompts, max_tokens=most)
    made = by_text(texts, count)
    assert list(zip(made, texts.stopped, strict=True)) == [following(prompt, most) for prompt in prompts]
    assert texts.timing.texts == count and texts.timing.tokens == sum(map(len, made))
    assert made == [list(model.generate(prompt, max_tokens=most)) for prompt in prompts]


def test_one_call_gives_a_token_of_every_text(calls: Any, bundle: Path) -> None:
    model = runtime.load(bundle)
    prompts = [[token] for token in range(tiny.END) if len(following([token], 4)[0]) == 4][:3]
    texts = model.generate_many(prompts, max_tokens=4)
    # As they are computed: first a token of each, then the next of each.
    assert [text for text, _ in texts] == [0, 1, 2] * 4
    assert calls == {"step": 3, "together": 3}


def test_the_last_text_goes_on_by_steps(calls: Any, bundle: Path) -> None:
    model = runtime.load(bundle)
    [long, reason], short = following([3]), following([3, 1, 4, 1, 5], 1)
    assert short == ([], "end of text") and reason != "max_tokens"
    texts = model.generate_many([[3], [3, 1, 4, 1, 5]])
    assert by_text(texts, 2) == [long, []]
    assert calls["together"] == 0 and calls["step"] >= len(long)


def test_a_common_beginning_is_computed_once(calls: Any, bundle: Path) -> None:
    model = runtime.load(bundle)
    begin = [3, 1, 4, 1, 5, 9, 2, 6]
    prompts = [[*begin, last] for last in (5, 8, 7)]
    texts = model.generate_many(prompts, max_tokens=3)
    made = by_text(texts, 3)
    assert made == [following(prompt, 3)[0] for prompt in prompts]
    # Nine tokens are two chunks and a step; each other text has one token of its own.
    assert (calls["prefill"], calls["step"], texts.timing.reused_tokens) == (2, 3, 16)
    # What is known from before counts too, wherever it lies.
    again = model.generate_many([[*prompts[2], made[2][0]]], max_tokens=1)
    assert by_text(again, 1) == [[made[2][1]]] and again.timing.reused_tokens == 9


def test_the_model_may_be_used_meanwhile(model: runtime.Model) -> None:
    first, second = (model.generate_many(PROMPTS[:3], max_tokens=9) for _ in range(2))
    made: list[list[Any]] = [[] for _ in range(3)]
    for text, piece in first:
        made[text].append(piece)
        next(second, None)
        assert list(model.generate([5, 5], max_tokens=1)) == following([5, 5], 1)[0]
        model.run(_inputs(1, 0))
    assert made == [following(prompt, 9)[0] for prompt in PROMPTS[:3]]


def _inputs(token: int, position: int) -> list[Any]:
    import numpy as np

    return [np.array([token], "int32"), np.array([position], "int32")]


def test_a_place_that_is_full_is_spared(model: runtime.Model) -> None:
    """A text that ended with its context full stays where it is, while others go on."""
    prompts = [[1] * tiny.CONTEXT, [3], [3, 1, 4, 2]]
    texts = model.generate_many(prompts, max_tokens=20)
    made = by_text(texts, 3)
    assert list(zip(made, texts.stopped, strict=True)) == [following(prompt, 20) for prompt in prompts]
    assert list(model.generate(prompts[0], max_tokens=1)) == following(prompts[0], 1)[0]


def test_texts_are_pieces_of_characters(model: runtime.Model) -> None:
    prompts = [" ".join(WORDS[token] for token in prompt) for prompt in ([3, 1, 4, 2], [2, 9, 4])]
    texts = model.generate_many([*prompts, [3, 1, 4, 2]], max_tokens=3)
    made = by_text(texts, 3)
    assert ["".join(pieces) for pieces in made[:2]] == [
        "".join(model.generate(prompt, max_tokens=3)) for prompt in prompts
    ]
    # Numbers and texts go together.
    assert made[2] == following([3, 1, 4, 2], 3)[0]


def test_every_text_is_drawn_by_its_seed(model: runtime.Model) -> None:
    how = {"max_tokens": 8, "temperature": 3.0}
    made = by_text(model.generate_many([[3], [3], [3]], seed=[5, 5, 6], **how), 3)
    assert made[0] == made[1] == list(model.generate([3], seed=5, **how))
    assert made[2] == list(model.generate([3], seed=6, **how)) != made[0]


@pytest.mark.parametrize(
    ("prompts", "options", "message"),
    [
        ([], {}, "there are no prompts"),
        ("one", {}, "the prompts are one text: give a list"),
        ([[3], []], {}, "the prompt is empty"),
        ([[3], [13]], {}, "token 13 is not of the model's vocabulary"),
        ([[3], [1] * 33], {}, "the prompt has 33 tokens"),
        ([[3], [1]], {"seed": [1]}, "1 seeds for 2 prompts"),
        ([[3]], {"max_tokens": 0}, "max_tokens is 0"),
        ([[3]], {"temperature": -1.0}, "temperature is -1.0"),
    ],
)
def test_mistakes_are_named(model: runtime.Model, prompts: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model.generate_many(prompts, **options)


def test_a_bundle_of_one_text_makes_them_one_by_one(tmp_path: Path) -> None:
    model = runtime.load(write_tiny(tmp_path))
    texts = model.generate_many(PROMPTS[:3], max_tokens=4)
    assert by_text(texts, 3) == [following(prompt, 4)[0] for prompt in PROMPTS[:3]]


def test_the_memory_of_all_texts_is_in_the_manifest(bundle: Path, tmp_path: Path) -> None:
    one, several = (
        json.loads((folder / "manifest.json").read_text()) for folder in (write_tiny(tmp_path), bundle)
    )
    assert several["decoder"]["sequences"] == tiny.TEXTS and "sequences" not in one["decoder"]
    more = several["memory"]["activations_bytes"] - one["memory"]["activations_bytes"]
    assert more >= (tiny.TEXTS - 1) * tiny.CONTEXT * 4


def test_a_library_without_the_function_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(write_tiny(tmp_path), folder)
    decoder = json.loads((folder / "manifest.json").read_text())["decoder"]
    reseal(folder, decoder={**decoder, "sequences": 2})
    with pytest.raises(AgentError, match="its library has no function together"):
        runtime.load(folder)
