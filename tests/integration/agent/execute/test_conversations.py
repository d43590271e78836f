"""Conversations with a language model, and strings that end its texts, as an application has them."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import device_agent.runtime as runtime
from device_agent.contract.language.chat_templates import CHAT, check_chat
from device_agent.errors import AgentError
from device_agent.execute.text.speculation import Pace
from tests import tiny_decoder as tiny
from tests.signing import reseal, seal
from tests.tiny_bundle import write_tiny
from tests.tiny_tokenizer import WORDS, write_tokenizer

pytestmark = pytest.mark.usefixtures("trusted_here")
# A word for the role of each turn, and then what was said; "eleven" begins an answer.
TEMPLATE = """{% if messages[-1].role == 'assistant' %}{{ raise_exception('who asks?') }}{% endif %}
{% set words = {'system': 'nine', 'user': 'ten', 'assistant': bos_token} %}
{% for message in messages %}
{{ words[message.role] }} {{ message.content }}
{% endfor %}
{% if add_generation_prompt %}{{ bos_token }}{% endif %}{% if more %} {{ more }}{% endif %}
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: Any) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    chat = check_chat({"default": TEMPLATE, "other": "{{ messages[0].content }}"}, {"bos_token": "eleven"})
    return write_tiny(folder, write_tokenizer(folder / "words.json"), several=True, chat=chat.content())


@pytest.fixture
def model(bundle: Path) -> runtime.Model:
    return runtime.load(bundle)


def turn(role: str, tokens: Sequence[int] | str) -> dict[str, str]:
    return {"role": role, "content": tokens if isinstance(tokens, str) else words(tokens)}


def words(tokens: Sequence[int]) -> str:
    return " ".join(WORDS[token] for token in tokens)


def prompt_of(messages: Sequence[Mapping[str, str]]) -> list[int]:
    """The tokens that the template makes of a conversation."""
    roles = {"system": 9, "user": 10, "assistant": 11}
    tokens = []
    for message in messages:
        tokens += [roles[message["role"]], *map(WORDS.index, message["content"].split())]
    return [*tokens, 11]


def answer_to(messages: Sequence[Mapping[str, str]], count: int) -> list[int]:
    prompt = prompt_of(messages)
    found = tiny.following(prompt, count)
    return found[: found.index(tiny.END)] if tiny.END in found else found


def test_each_turn_computes_what_is_new(model: runtime.Model) -> None:
    messages = [turn("system", [1, 2]), turn("user", [3, 1])]
    known = 0
    for asked in ([4, 1], [5], [2, 6]):
        wanted = answer_to(messages, 3)
        answer = "".join(model.chat(messages, max_tokens=3))
        assert answer.split() == words(wanted).split()
        timing = model.timing
        assert timing is not None and timing.prompt_tokens == len(prompt_of(messages))
        assert timing.reused_tokens == known
        # The last token of an answer that was cut off was not given to the model.
        known = timing.prompt_tokens + len(wanted) - (model.stopped == "max_tokens")
        messages += [turn("assistant", answer), turn("user", asked)]
    assert known > 20


def test_another_conversation_keeps_what_they_have_in_common(model: runtime.Model) -> None:
    system = turn("system", [1, 2, 5, 7])
    list(model.chat([system, turn("user", [3, 1])], max_tokens=1))
    list(model.chat([system, turn("user", [4])], max_tokens=1))
    assert model.timing is not None and model.timing.reused_tokens == 6


@pytest.mark.parametrize("options", [{}, {"temperature": 2.0, "seed": 3}, {"temperature": 0.3, "top_k": 3}])
def test_a_conversation_is_the_text_of_its_prompt(model: runtime.Model, options: dict[str, Any]) -> None:
    messages = [turn("user", [3, 1, 3, 1, 3])]
    text = words(prompt_of(messages))
    plain = "".join(map(str, model.generate(text, max_tokens=8, **options)))
    for speculate in (False, True):
        assert "".join(model.chat(messages, max_tokens=8, speculate=speculate, **options)) == plain
    assert "".join(model.chat([turn("user", text)], max_tokens=8, template="other", **options)) == plain
    more = "".join(map(str, model.generate(f"{text} two", max_tokens=8, **options)))
    assert "".join(model.chat(messages, max_tokens=8, variables={"more": "two"}, **options)) == more
    assert model.chat_templates == ("default", "other")


def test_each_of_several_tokens_ends_a_turn(bundle: Path, tmp_path: Path) -> None:
    messages = [turn("user", [3, 1])]
    found = tiny.following(prompt_of(messages), 12)
    end = next(token for token in found[2:] if token not in (*found[:2], tiny.END))
    folder = tmp_path / "copy"
    shutil.copytree(bundle, folder)
    decoder = json.loads((folder / "manifest.json").read_text())["decoder"]
    reseal(folder, decoder={**decoder, "end_tokens": [tiny.END, end]})
    model = runtime.load(folder)
    answer = "".join(model.chat(messages))
    assert answer.split() == words(found[: found.index(end)]).split() and model.stopped == "end of text"


def test_the_end_of_the_context_is_said_in_one_line(model: runtime.Model) -> None:
    messages = [turn("user", [1] * (tiny.CONTEXT - 2))]
    assert len("".join(model.chat(messages, max_tokens=9)).split()) == 1
    assert model.stopped == "the context of 32 tokens is full: a larger --context holds longer texts"
    messages = [*messages, turn("assistant", [1]), turn("user", [2])]
    with pytest.raises(
        ValueError, match="the conversation has 36 tokens, the model has a context of 32: begin"
    ):
        model.chat(messages)


def test_what_cannot_be_answered_is_refused(model: runtime.Model, bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="the model's chat template fails: who asks"):
        model.chat([turn("assistant", [1])])
    with pytest.raises(AgentError, match="no chat template 'none'"):
        model.chat([turn("user", [1])], template="none")
    with pytest.raises(ValueError, match="there are no messages"):
        model.chat([])
    with pytest.raises(ValueError, match="stop string"):
        model.chat([turn("user", [1])], stop=[""])
    folder = tmp_path / "copy"
    shutil.copytree(bundle, folder)
    (folder / CHAT).unlink()
    fields = json.loads((folder / "manifest.json").read_text())
    seal(folder, **{name: value for name, value in fields.items() if name != "files"})
    other = runtime.load(folder)
    assert other.chat_templates == ()
    with pytest.raises(AgentError, match="has no chat template: deploy a model that has one, or give"):
        other.chat([turn("user", [1])])


def test_a_conversation_without_the_package_says_what_to_install(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = runtime.load(bundle)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(AgentError, match="needs the package tokenizers: pip install tokenizers"):
        model.chat([turn("user", [1])])


PROMPT = [3, 1, 4, 1, 5, 3, 1]


@pytest.mark.parametrize("options", [{}, {"temperature": 2.0, "seed": 3}], ids=str)
@pytest.mark.parametrize("speculates", [False, True])
def test_a_text_ends_before_a_stop_string_of_several_tokens(
    model: runtime.Model, options: dict[str, Any], speculates: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pace, "worth", lambda pace: True)
    prompt = words(PROMPT)
    whole = "".join(map(str, model.generate(prompt, max_tokens=9, **options)))
    reason = model.stopped
    said = whole.split()
    for first in range(len(said) - 1):
        # The end of a word, a space, and the beginning of the next.
        stop = f"{said[first][1:]} {said[first + 1][:2]}"
        pieces = list(
            map(str, model.generate(prompt, max_tokens=9, speculate=speculates, stop=["zz", stop], **options))
        )
        assert "".join(pieces) == whole[: whole.index(stop)] and model.stopped == "stop string"
    assert "".join(map(str, model.generate(prompt, max_tokens=9, stop="zz", **options))) == whole
    assert model.stopped == reason
    # What may have become one is given where the text ends.
    held = list(map(str, model.generate(prompt, max_tokens=9, stop=[whole[-4:] + "z"], **options)))
    assert "".join(held) == whole and model.stopped == reason
    assert len("".join(held[:-1])) == len(whole) - 4


def test_a_turn_ends_before_a_stop_string(model: runtime.Model) -> None:
    messages = [turn("user", [3, 1])]
    whole = "".join(model.chat(messages, max_tokens=6))
    stop = whole.split()[2]
    assert "".join(model.chat(messages, max_tokens=6, stop=[stop])) == whole[: whole.index(stop)]
    assert model.stopped == "stop string" and model.timing is not None and model.timing.tokens <= 6


@pytest.mark.parametrize("count", [1, 3, 5])
def test_several_texts_end_as_each_alone(model: runtime.Model, count: int) -> None:
    prompts = [words([one, 1, 4]) for one in range(1, count + 1)]
    stops = [" ".join(WORDS[token] for token in tiny.following([1, 1, 4], 5)[2:4])]
    alone, reasons = [], []
    for prompt in prompts:
        alone.append("".join(map(str, model.generate(prompt, max_tokens=7, stop=stops))))
        reasons.append(model.stopped)
    texts = model.generate_many(prompts, max_tokens=7, stop=stops)
    found = [""] * count
    for text, piece in texts:
        found[text] += str(piece)
    assert found == alone and texts.stopped == reasons and reasons[0] == "stop string"


def test_stop_strings_are_of_texts(model: runtime.Model) -> None:
    with pytest.raises(ValueError, match="stop strings end texts: give the prompt as text"):
        model.generate([3, 1], stop=["one"])
    with pytest.raises(ValueError, match="stop strings end texts"):
        model.generate_many([[3, 1]], stop="one")
