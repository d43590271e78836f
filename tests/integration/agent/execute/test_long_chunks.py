"""Prompts of a language model that has chunks of two lengths."""

from __future__ import annotations

import collections
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import device_agent.runtime as runtime
from device_agent.errors import AgentError
from device_agent.execute.virtual_machine import Entry, VirtualMachine
from tests import tiny_decoder as tiny
from tests.signing import reseal
from tests.tiny_bundle import write_tiny
from tests.tiny_decoder import following

pytestmark = pytest.mark.usefixtures("trusted_here")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: Any) -> Path:
    return write_tiny(tmp_path_factory.mktemp("long"), several=True, long_prefilling=tiny.long_steps)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> collections.Counter[str]:
    """Counts calls of the functions beside `main` of the first text."""
    counts: collections.Counter[str] = collections.Counter()
    entry = VirtualMachine.entry

    def counted_entry(self: VirtualMachine, name: str, *others: Any) -> Entry:
        made = entry(self, name, *others)

        def call() -> Any:
            counts[name] += 1
            return made.invoke()

        return Entry(made.inputs, call)

    monkeypatch.setattr(VirtualMachine, "entry", counted_entry)
    return counts


def prompt_of(count: int) -> list[int]:
    """Tokens behind which the text does not end."""
    made = [place * 5 % 11 for place in range(count)]
    while tiny.next_token(made) == tiny.END:
        made[0] += 1
    return made


def reused(model: runtime.Model) -> int:
    """Tokens of the last text that were not computed again."""
    assert model.timing is not None
    return model.timing.reused_tokens


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (1, {}),
        (5, {"prefill": 1}),
        # As many rows as two short chunks have.
        (6, {"long_prefill": 1}),
        (8, {"long_prefill": 1}),
        (12, {"long_prefill": 1, "prefill": 1}),
        (16, {"long_prefill": 2}),
        # The last one begins at tokens that are known.
        (31, {"long_prefill": 4}),
        (32, {"long_prefill": 4}),
    ],
)
def test_a_prompt_has_long_chunks_where_they_are_worth_it(
    count: int, expected: dict[str, int], bundle: Path, calls: collections.Counter[str]
) -> None:
    model, prompt = runtime.load(bundle), prompt_of(count)
    assert list(model.generate(prompt, max_tokens=1)) == following(prompt, 1)
    assert calls == expected


def test_a_long_chunk_at_the_end_of_the_context_keeps_what_is_known(
    bundle: Path, calls: collections.Counter[str]
) -> None:
    model, prompt = runtime.load(bundle), prompt_of(25)
    assert list(model.generate(prompt, max_tokens=1)) == following(prompt, 1)
    calls.clear()
    longer = [*prompt, 1, 3, 5, 7, 9, 1, 2]
    assert list(model.generate(longer, max_tokens=1)) == following(longer, 1)
    assert calls == {"long_prefill": 1} and reused(model) == 25


def test_texts_are_those_of_short_chunks(bundle: Path, tmp_path: Path) -> None:
    """One by one, several at once, with drafts, and behind a prompt that was kept."""
    long, short = runtime.load(bundle), runtime.load(write_tiny(tmp_path / "short", several=True))
    prompts = [prompt_of(count) for count in (3, 6, 9, 14, 20)]
    for prompt in prompts:
        wanted = list(short.generate(prompt))
        for speculate in (True, False):
            assert list(long.generate(prompt, speculate=speculate)) == wanted
    made: list[list[Any]] = [[] for _ in prompts]
    for text, piece in long.generate_many(prompts):
        made[text].append(piece)
    assert made == [list(short.generate(prompt)) for prompt in prompts]
    other, kept = runtime.load(bundle), tmp_path / "kept"
    list(long.generate(prompts[3], max_tokens=1))
    assert long.save_prompt(kept) == other.load_prompt(kept) == 14
    behind = [*prompts[3], 4, 4, 1, 2, 3, 4, 5]
    assert list(other.generate(behind, max_tokens=1)) == following(behind, 1)
    assert reused(other) == 14


def test_memory_and_files_know_of_it(bundle: Path, tmp_path: Path) -> None:
    without = write_tiny(tmp_path / "short", several=True)
    long, short = (json.loads((folder / "manifest.json").read_text()) for folder in (bundle, without))
    assert long["decoder"] == {**short["decoder"], "long_chunk": tiny.LONG_CHUNK}
    assert long["memory"]["activations_bytes"] > short["memory"]["activations_bytes"]
    assert long["memory"]["weights_bytes"] == short["memory"]["weights_bytes"]
    # A manifest that says so of a library without the function.
    folder = tmp_path / "copy"
    shutil.copytree(without, folder)
    reseal(folder, decoder=long["decoder"])
    with pytest.raises(AgentError, match="its library has no function long_prefill"):
        runtime.load(folder)
    # A runtime reads bundles of before it, whose manifests say nothing of it, and one that takes no notice.
    folder = tmp_path / "older"
    shutil.copytree(bundle, folder)
    reseal(folder, decoder=short["decoder"])
    prompt = prompt_of(12)
    assert list(runtime.load(folder).generate(prompt, max_tokens=1)) == following(prompt, 1)
