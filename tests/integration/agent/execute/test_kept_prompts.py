"""Prompts that are saved to a file and loaded by another process."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import device_agent.runtime as runtime
from device_agent.errors import AgentError
from tests import tiny_decoder as tiny
from tests.decoders.spoiled_prompts import other_first_value, spoiled
from tests.tiny_bundle import write_tiny
from tests.tiny_decoder import following
from tests.tiny_tokenizer import write_tokenizer

pytestmark = pytest.mark.usefixtures("trusted_here")
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5]


@pytest.fixture(scope="session")
def tiny_bundle(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    return write_tiny(folder, write_tokenizer(folder / "words.json"))


@pytest.fixture
def saved(tiny_bundle, tmp_path) -> Path:
    model, path = runtime.load(tiny_bundle), tmp_path / "prompt"
    assert len(list(model.generate(PROMPT, max_tokens=1))) == 1
    # The token that was generated has not been computed: its keys and values are not there.
    assert model.save_prompt(path) == len(PROMPT)
    assert not list(tmp_path.glob("*.part"))
    return path


def test_a_loaded_prompt_is_not_computed_again(tiny_bundle, saved):
    model = runtime.load(tiny_bundle)
    assert model.load_prompt(saved) == len(PROMPT)
    longer = [*PROMPT, 7, 8]
    assert list(model.generate(longer, max_tokens=4)) == following(longer, 4)
    assert model.timing.reused_tokens == len(PROMPT)
    # Another text may share its beginning.
    assert model.load_prompt(saved) == len(PROMPT)
    other = [*PROMPT[:6], 10, 11]
    assert list(model.generate(other, max_tokens=3)) == following(other, 3)
    assert model.timing.reused_tokens == 6


def test_the_state_is_what_was_saved_and_not_what_is_computed(tiny_bundle, saved):
    """Values that only the file has are read: the state is taken from it."""
    saved.write_bytes(other_first_value(saved.read_bytes(), 4.0))
    model = runtime.load(tiny_bundle)
    model.load_prompt(saved)
    assert next(model.generate([*PROMPT, 7])) == tiny.next_token([4, *PROMPT[1:], 7])


def content_of(path: Path) -> str:
    """The digest that a file has of its bundle."""
    [content] = re.findall(rb"[0-9a-f]{64}", path.read_bytes())
    return content.decode()


def test_spoiled_files_are_one_line_each_and_the_model_goes_on(tiny_bundle, saved):
    model, whole = runtime.load(tiny_bundle), saved.read_bytes()
    for data, words in spoiled(whole, content_of(saved)):
        assert list(model.generate(PROMPT, max_tokens=2)) == following(PROMPT, 2)
        saved.write_bytes(data)
        with pytest.raises(AgentError, match=words) as error:
            model.load_prompt(saved)
        assert "\n" not in str(error.value)
        assert list(model.generate([*PROMPT, 7], max_tokens=3)) == following([*PROMPT, 7], 3)


def test_what_is_not_there_is_told(tiny_bundle, bundle, tmp_path):
    model = runtime.load(tiny_bundle)
    with pytest.raises(AgentError, match="there is no such file"):
        model.load_prompt(tmp_path / "none")
    with pytest.raises(AgentError, match="there is no prompt to save"):
        model.save_prompt(tmp_path / "none")
    other = runtime.load(bundle)
    for call in (other.save_prompt, other.load_prompt):
        with pytest.raises(AgentError, match="is not the bundle of a language model"):
            call(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_file_that_cannot_be_written_leaves_none(tiny_bundle, tmp_path):
    model = runtime.load(tiny_bundle)
    next(model.generate(PROMPT))
    place = tmp_path / "folder"
    place.mkdir()
    with pytest.raises(OSError, match="directory"):
        model.save_prompt(place)
    assert not list(tmp_path.glob("*.part")) and not list(place.iterdir())
