"""Expert iteration: what a search finds is learned, and carries over to tasks that were not searched."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean

import pytest

from host.errors import TlmError
from host.schedules import DesignSpace, space_for
from host.schedules.api import Decisions
from host.tlm.model.decoding import Decoder
from host.tlm.model.network import load_model
from host.tlm.training.example import Example
from host.tlm.training.expert_iteration import LESSONS, Rounds, apart, learned_by_search, lesson_of, prompt_of
from host.tlm.training.finetune import Progress
from host.tlm.training.fitting import FinetuneOptions
from tests.unit.schedules import functions as fn
from tests.unit.schedules.cpu.test_chain import chain_space
from tests.unit.tlm.cases import board_of
from tests.unit.tlm.learning import untrained
from tests.unit.tlm.model.test_decoding import SIZE, VOCABULARY

ROUNDS = Rounds(count=2, written=4, uniform=8, keep=4)


@cache
def _spaces() -> tuple[DesignSpace, ...]:
    hardware = board_of("x86_64-v4").hardware
    return tuple(space_for(fn.task(fn.dense(6, 48, 8 * number)), hardware, 1) for number in range(1, 7))


def _seconds(space: DesignSpace, values: Decisions) -> float:
    """A board that likes the last choice of every decision."""
    return math.exp(-sum(one.choices.index(values[one.name]) / len(one.choices) for one in space.decisions))


def _expert(space: DesignSpace, programs: Sequence[Decisions], count: int) -> list[tuple[Decisions, float]]:
    known = [*programs, *(near for one in programs for near in space.neighbours(one))]
    found = {tuple(one.items()): (one, _seconds(space, one)) for one in known}
    return sorted(found.values(), key=lambda one: one[1])[:count]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return untrained(tmp_path / "base", SIZE)


def _options(base: Path, out: Path, **changes: object) -> FinetuneOptions:
    options = FinetuneOptions(base, out, steps=40, learning_rate=1e-2, replay_share=0.25, batch=4)
    return replace(options, **changes)  # type: ignore[arg-type]


def _written_s(checkpoint: Path, space: DesignSpace) -> float:
    """Mean seconds of what a model writes without a ranking."""
    names = [decision.name for decision in space.decisions]
    written = Decoder(load_model(checkpoint, VOCABULARY)[0], VOCABULARY, space).draw(8, seed=5)
    return fmean(_seconds(space, dict(zip(names, one.values, strict=True))) for one in written)


def test_a_model_writes_for_other_tasks_what_a_search_would_find(base: Path, tmp_path: Path) -> None:
    *searched, other = _spaces()
    told: list[Progress] = []
    tuned = learned_by_search(_options(base, tmp_path / "out"), ROUNDS, searched, _expert, told.append)
    assert _written_s(tuned, other) < 0.9 * _written_s(base, other)
    assert [one.done for one in told] == list(range(1, 81)) and told[0].total == 80
    # Interrupted and begun again: nothing is searched or trained twice.
    again: list[Progress] = []

    def nobody(
        space: DesignSpace, programs: Sequence[Decisions], count: int
    ) -> list[tuple[Decisions, float]]:
        raise AssertionError("searched again")

    options = _options(base, tmp_path / "out", resume=True)
    assert learned_by_search(options, ROUNDS, searched, nobody, again.append) == tuned and not again
    with pytest.raises(TlmError, match="another training"):
        learned_by_search(options, replace(ROUNDS, keep=5), searched, nobody, again.append)
    # Its models are not those of a longer training, or of one at another rate.
    for changed in ({"steps": 41}, {"learning_rate": 1e-3}):
        with pytest.raises(TlmError, match="another training"):
            learned_by_search(replace(options, **changed), ROUNDS, searched, nobody, again.append)


def test_a_damaged_file_of_lessons_is_refused(base: Path, tmp_path: Path) -> None:
    (tmp_path / "out" / "round-1").mkdir(parents=True)
    (tmp_path / "out" / "round-1" / LESSONS).write_text("{")
    options = _options(base, tmp_path / "out", resume=True)
    with pytest.raises(TlmError, match="is damaged"):
        learned_by_search(options, ROUNDS, _spaces()[:1], _expert, lambda _: None)
    with pytest.raises(TlmError, match="no task to learn"):
        learned_by_search(options, ROUNDS, (), _expert, lambda _: None)


def test_the_best_programs_of_all_rounds_are_kept() -> None:
    space = _spaces()[0]
    drawn = sorted(_expert(space, [space.sample(random.Random(3))], 9), key=lambda one: one[1])
    named = [([(one.name, values[one.name]) for one in space.decisions], s) for values, s in drawn]
    prompt = prompt_of(space, VOCABULARY)
    first = lesson_of(0, prompt, named[4:], VOCABULARY, 3)
    both = lesson_of(0, prompt, named[:1], VOCABULARY, 3, first)
    assert isinstance(both, Example) and len(both.programs) == 3
    assert both.estimates == (named[0][1], *first.estimates[:2])
    assert [slower for _, slower in both.programs] == [round(one / named[0][1], 4) for one in both.estimates]


def test_chains_are_learned_part_by_part() -> None:
    chain, dense = chain_space("three parts")[0], _spaces()[0]
    assert list(apart([chain, dense])) == [*chain.parts, dense]
