"""Texts of a language model, as an application generates them."""

from __future__ import annotations

import collections
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import device_agent.runtime as runtime
from device_agent.errors import AgentError
from device_agent.execute.text.speculation import Lookup, Pace
from device_agent.execute.virtual_machine import Entry, VirtualMachine
from tests import tiny_decoder as tiny
from tests.signing import reseal, seal
from tests.tiny_bundle import write_tiny
from tests.tiny_tokenizer import WORDS, write_tokenizer

pytestmark = pytest.mark.usefixtures("trusted_here")


@pytest.fixture(scope="session")
def tiny_bundle(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    return write_tiny(folder, write_tokenizer(folder / "words.json"))


@pytest.fixture
def calls(monkeypatch):
    """Counts calls of the model by the number of tokens that they take."""
    counts = collections.Counter()

    def counted(function, size):
        def call():
            counts[size] += 1
            return function()

        return call

    entry, bound = VirtualMachine.entry, VirtualMachine._bound

    def counted_entry(self, name, inputs, texts):
        made = entry(self, name, inputs, texts)
        return Entry(made.inputs, counted(made.invoke, "chunk"))

    monkeypatch.setattr(VirtualMachine, "entry", counted_entry)
    monkeypatch.setattr(VirtualMachine, "_bound", lambda self: counted(bound(self), "step"))
    return counts


@pytest.fixture
def model(calls, tiny_bundle):
    return runtime.load(tiny_bundle)


def expected(prompt, count=10**6):
    """What follows a prompt, and why it ends."""
    tokens = list(prompt)
    while len(tokens) - len(prompt) < count and len(tokens) <= tiny.CONTEXT:
        token = tiny.next_token(tokens)
        if token == tiny.END:
            return tokens[len(prompt) :]
        tokens.append(token)
    return tokens[len(prompt) :]


def prompts():
    return [[3], [3, 1], [3, 1, 4], [2, 9, 4, 11, 6], [3, 1, 4, 1, 5, 9], [9, 2, 6, 5, 3, 5, 8, 9, 7]]


@pytest.mark.parametrize("prompt", prompts(), ids=len)
def test_tokens_follow_a_prompt_of_any_length(model, prompt):
    assert list(model.generate(prompt)) == expected(prompt)


def test_a_prompt_is_taken_in_chunks_and_padded(model, calls):
    list(model.generate([3, 1, 4, 1, 5, 9, 2], max_tokens=1))
    assert calls == {"chunk": 2}
    # A single token is left: a step is enough.
    list(model.generate([4, 1, 4, 1, 5], max_tokens=1))
    assert calls == {"chunk": 3, "step": 1}


def test_at_the_end_of_the_context_a_chunk_begins_at_tokens_that_are_known(model, calls):
    prompt = [token % 5 for token in range(tiny.CONTEXT - 1)]
    assert list(model.generate(prompt, max_tokens=1)) == expected(prompt, 1)
    # The last whole chunk ends at 32, and it is padded.
    assert calls == {"chunk": 8}
    other = [1, *prompt[1:], 2]
    list(model.generate(other[:2], max_tokens=1))
    calls.clear()
    assert list(model.generate(other, max_tokens=1)) == expected(other, 1)
    # Of the last chunk, from 28 to 32, two tokens are new.
    assert calls == {"chunk": 8} and model.timing.reused_tokens == 2
    calls.clear()
    assert list(model.generate(other[:31], max_tokens=1)) == expected(other[:31], 1)
    assert calls == {"step": 1}


@pytest.mark.parametrize(
    ("prompt", "count", "reason"),
    [
        ([3, 1], 2, "max_tokens"),
        ([1] * tiny.CONTEXT, 5, "the context of 32 tokens is full: a larger --context holds longer texts"),
    ],
)
def test_a_text_says_why_it_ended(model, prompt, count, reason):
    found = list(model.generate(prompt, max_tokens=count))
    assert found == expected(prompt, count) and model.stopped == reason


def test_a_token_that_ends_a_text_is_not_given(model):
    assert tiny.next_token([3, 1, 4, 1, 5]) == tiny.END
    assert list(model.generate([3, 1, 4, 1, 5])) == [] and model.stopped == "end of text"
    assert model.timing.tokens == 0 and model.timing.tokens_per_s is None


def test_a_prompt_that_begins_as_the_last_text_is_not_computed_again(model, calls):
    prompt = [3, 1, 4, 1, 5, 9]
    found = list(model.generate(prompt, max_tokens=4))
    calls.clear()
    longer = [*prompt, *found, 7]
    assert list(model.generate(longer, max_tokens=1)) == expected(longer, 1)
    # The last token of the text was never given to the model, and one is new.
    assert calls == {"chunk": 1} and model.timing.reused_tokens == 9
    calls.clear()
    assert list(model.generate(prompt[:5], max_tokens=1)) == expected(prompt[:5], 1)
    assert calls == {"step": 1} and model.timing.reused_tokens == 4
    calls.clear()
    other = [3, 1, 4, 2, 5]
    assert list(model.generate(other, max_tokens=1)) == expected(other, 1)
    assert calls == {"chunk": 1} and model.timing.reused_tokens == 3


def test_a_text_may_be_left_and_the_model_used_for_something_else(model):
    first = model.generate([3, 1, 4], max_tokens=6)
    taken = [next(first), next(first)]
    second = model.generate([2, 7, 1], max_tokens=3)
    taken_of_second = [next(second)]
    model.run([np.array([9], "int32"), np.array([1], "int32")])
    assert taken + list(first) == expected([3, 1, 4], 6)
    assert taken_of_second + list(second) == expected([2, 7, 1], 3)
    left = model.generate([3, 1, 4], max_tokens=6)
    next(left)
    left.close()
    assert list(model.generate([3, 1, 4], max_tokens=6)) == expected([3, 1, 4], 6)


def test_a_call_that_fails_leaves_the_model_usable(model, monkeypatch):
    list(model.generate([3, 1, 4], max_tokens=2))
    working = model.machine.invoke

    def fails():
        raise RuntimeError("no memory")

    model.machine.invoke = fails
    with pytest.raises(RuntimeError, match="no memory"):
        list(model.generate([3, 1, 4], max_tokens=2))
    model.machine.invoke = working
    assert list(model.generate([3, 1, 4], max_tokens=2)) == expected([3, 1, 4], 2)


def test_text_is_given_for_text(model):
    words = " ".join(WORDS[token] for token in [3, 1, 4])
    found = "".join(model.generate(words, max_tokens=4))
    assert found.split() == [WORDS[token] for token in expected([3, 1, 4], 4)]
    # The words after a prompt are apart from it.
    assert found.startswith(" ")


def test_drawn_texts_differ_by_their_seed_only(model):
    def drawn(seed):
        return list(model.generate([3, 1, 4], max_tokens=8, temperature=3.0, seed=seed))

    assert drawn(1) == drawn(1)
    assert len({tuple(drawn(seed)) for seed in range(5)}) > 1


def test_timing_says_what_a_text_took(model):
    assert model.timing is None and model.stopped == ""
    list(model.generate([2, 9, 4, 11, 6], max_tokens=3))
    timing: Any = model.timing
    assert (timing.prompt_tokens, timing.reused_tokens, timing.tokens) == (5, 0, 3)
    assert timing.prefill_s > 0 and timing.decode_s > 0 and timing.tokens_per_s > 0


@pytest.mark.parametrize(
    ("prompt", "options", "reason"),
    [
        ([], {}, "the prompt is empty"),
        ("", {}, "the prompt is empty"),
        ([1] * 33, {}, "the prompt has 33 tokens, the model has a context of 32"),
        ([1, 13], {}, "token 13 is not of the model's vocabulary, 0 to 12"),
        ([-1], {}, "token -1 is not"),
        ([1], {"max_tokens": 0}, "max_tokens is 0"),
        ([1], {"temperature": -0.5}, "temperature is -0.5"),
    ],
)
def test_what_does_not_fit_is_refused_at_once(model, calls, prompt, options, reason):
    with pytest.raises(ValueError, match=reason):
        model.generate(prompt, **options)
    assert not calls


def test_text_without_a_tokenizer_says_what_to_do(tiny_bundle, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(tiny_bundle, folder)
    (folder / "tokenizer.json").unlink()
    files = json.loads((folder / "manifest.json").read_text())["files"]
    reseal(folder, files={name: entry for name, entry in files.items() if name != "tokenizer.json"})
    model = runtime.load(folder)
    with pytest.raises(AgentError, match="give the prompt as token numbers"):
        model.generate("one")
    assert list(model.generate([1], max_tokens=2)) == expected([1], 2)


def test_text_without_the_package_says_what_to_install(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(AgentError, match="needs the package tokenizers: pip install tokenizers, or"):
        model.generate("one")


def test_a_damaged_tokenizer_is_an_error_of_the_bundle(tiny_bundle, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(tiny_bundle, folder)
    (folder / "tokenizer.json").write_text("{\x1b[2J")
    fields = json.loads((folder / "manifest.json").read_text())
    seal(folder, **{name: value for name, value in fields.items() if name != "files"})
    with pytest.raises(AgentError, match="cannot be read") as refusal:
        runtime.load(folder).generate("one")
    assert str(refusal.value).isprintable()


def test_a_library_without_the_second_function_is_refused_when_it_is_loaded(tiny_bundle, bundle, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(tiny_bundle, folder)
    shutil.copyfile(bundle / "lib.so", folder / "lib.so")
    fields = json.loads((folder / "manifest.json").read_text())
    seal(folder, **{name: value for name, value in fields.items() if name != "files"})
    with pytest.raises(AgentError, match="has no function prefill"):
        runtime.load(folder)


def test_other_bundles_generate_nothing(bundle):
    model = runtime.load(bundle)
    assert model.timing is None and model.stopped == ""
    with pytest.raises(AgentError, match="not the bundle of a language model"):
        model.generate([1])


REPEATING = [3, 1, 4, 1, 5, 3, 1, 4, 1, 5, 3, 1]


@pytest.mark.parametrize("prompt", [*prompts(), REPEATING], ids=str)
@pytest.mark.parametrize(
    "options", [{}, {"temperature": 2.0, "seed": 3}, {"temperature": 0.3, "top_k": 3}], ids=str
)
def test_speculation_writes_the_same_text(model, prompt, options):
    plain = list(model.generate(prompt, speculate=False, **options))
    assert model.timing.speculated_tokens == 0
    reason = model.stopped
    assert list(model.generate(prompt, speculate=True, **options)) == plain
    assert model.stopped == reason
    for count in (1, 2, 3):
        assert list(model.generate(prompt, speculate=True, max_tokens=count, **options)) == plain[:count]


def test_right_drafts_save_steps(model, calls, monkeypatch):
    prompt = [3, 1, 4]
    wanted = expected(prompt)
    text = prompt + wanted

    def known(lookup, tokens, count):
        return text[len(tokens) : len(tokens) + count]

    monkeypatch.setattr(Lookup, "draft", known)
    assert list(model.generate(prompt, speculate=True)) == wanted
    timing: Any = model.timing
    assert timing.tokens == len(wanted) and timing.speculated_tokens > len(wanted) // 3
    plain = collections.Counter(calls)
    calls.clear()
    list(model.generate([*prompt[:1], 2], max_tokens=1))
    calls.clear()
    assert list(model.generate(prompt, speculate=False)) == wanted
    assert sum(plain.values()) + timing.speculated_tokens == sum(calls.values())


def test_wrong_drafts_change_nothing(model, monkeypatch):
    prompt = [3, 1, 4]
    wanted = expected(prompt)
    text = prompt + wanted

    def wrong(lookup, tokens, count):
        right = text[len(tokens) : len(tokens) + count]
        return [*right[:-1], (right[-1] + 1) % tiny.VOCABULARY] if right else []

    monkeypatch.setattr(Lookup, "draft", wrong)
    assert list(model.generate(prompt, speculate=True)) == wanted


def test_another_text_between_two_tokens_of_a_speculated_one(model):
    first = model.generate(REPEATING, max_tokens=9, speculate=True)
    found = [next(first) for _ in range(3)]
    assert list(model.generate([2, 7, 1], max_tokens=3, speculate=True)) == expected([2, 7, 1], 3)
    assert found + list(first) == expected(REPEATING, 9)


def test_speculation_is_on_where_its_times_are_shorter(model, monkeypatch):
    prompt = [3, 1, 4]
    text = prompt + expected(prompt)
    monkeypatch.setattr(
        Lookup, "draft", lambda lookup, tokens, count: text[len(tokens) : len(tokens) + count]
    )
    monkeypatch.setattr(Pace, "worth", lambda pace: False)
    assert prompt + list(model.generate(prompt)) == text and model.timing.speculated_tokens == 0
    monkeypatch.setattr(Pace, "worth", lambda pace: True)
    assert prompt + list(model.generate(prompt)) == text and model.timing.speculated_tokens > 0
