"""Searches by the learned estimate before the last training: where it convinces, without what judges."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from host.learned_estimate.estimate import LearnedEstimate
from host.learned_estimate.observation import observations_of
from host.learned_estimate.search import best_found
from host.records import Record, RecordOrigin, profile_data
from host.schedules import DesignSpace
from host.tlm.language.description import describe_board, describe_task
from host.tlm.language.sentence import encode_prompt
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model.card import Size, read_card
from host.tlm.model.network import load_model, new_model, save_model
from host.tlm.training import gate
from host.tlm.training.example import Example
from host.tlm.training.expert_iteration import Rounds, lessons_by_search, prompt_of
from host.tlm.training.finetune import WHOLE, fold_name
from host.tlm.training.fitting import LEARNED
from host.tlm.training.record_examples import examples_of_records
from host.tuning.learning.searching import lessons_of_board
from tests.unit.learned_estimate.test_evidence import tall_is_slow
from tests.unit.schedules.cpu.test_chain import chain_space
from tests.unit.tuning.simulated import dense_of, measured, profile

VOCABULARY = Vocabulary()
SPACES = [dense_of(rows) for rows in (8, 16, 24, 32, 48, 64, 96, 128)]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with random weights."""
    folder, size = tmp_path_factory.mktemp("base"), Size(layers=1, heads=1, width=32)
    save_model(new_model(VOCABULARY, size, 0), folder, VOCABULARY, size, "", {})
    return folder


def _records(convincing: bool) -> list[Record]:
    """Programs of each task, whose times are slow with tall tiles, or belong to other programs."""
    found = []
    for space in SPACES:
        generator = random.Random(space.task.workload_hash)
        programs = [space.sample(generator) for _ in range(12)]
        times = [tall_is_slow(space, values) for values in programs]
        if not convincing:
            generator.shuffle(times)
        sentence = tuple(encode_prompt(describe_board(space.hardware, space.threads), describe_task(space)))
        for values, seconds in zip(programs, times, strict=True):
            candidate = space.candidate(values, "random", space.estimate_s(values))
            origin = RecordOrigin(sentence=sentence, estimate_parts_s=space.estimated(values))
            found.append(Record(candidate, profile_data(profile()), measured(seconds), origin=origin))
    return found


def _fold(space: DesignSpace) -> int:
    return gate.fold_of(Example(0, prompt_of(space, VOCABULARY)))


def _task(space: DesignSpace) -> str:
    return gate.task_of(Example(0, prompt_of(space, VOCABULARY)))


def test_what_a_search_finds_is_learned_and_no_training_sees_what_judges_it(base: Path) -> None:
    records = _records(True)
    examples = examples_of_records(records, VOCABULARY)
    lessons = lessons_of_board(records, examples, SPACES, base, seed=0)
    folds = gate.folds(examples)
    assert set(lessons) == {WHOLE, *(fold_name(fold.number) for fold in folds)}
    assert {gate.task_of(one) for one in lessons[WHOLE]} == set(map(_task, SPACES))
    # What nobody measured is expected to be faster than all that was.
    learned = LearnedEstimate(observations_of(records))
    for space in SPACES:
        [own] = [one for one in lessons[WHOLE] if gate.task_of(one) == _task(space)]
        known = [one for one in observations_of(records) if one.program.task == space.task.workload_hash]
        least = min(learned.cost_s(space, one.program.values) for one in known)
        assert own.estimates[0] <= 1.000001 * least
    for fold in folds:
        withheld = {gate.task_of(one) for one in fold.withheld}
        own_tasks = {gate.task_of(one) for one in lessons[fold_name(fold.number)]}
        assert own_tasks and not own_tasks & withheld
        # Nor has it learned from their times: other ones would change nothing.
        kept = [one for one in records if _task(_space(one)) not in withheld]
        taught = LearnedEstimate(observations_of(kept))
        first = lessons[fold_name(fold.number)][0]
        [space] = [one for one in SPACES if _task(one) == gate.task_of(first)]
        [found] = lessons_by_search(base, Rounds(count=1), [space], partial(best_found, taught), 0)
        assert found.estimates == pytest.approx(first.estimates)


def test_a_fold_searches_no_part_of_its_tasks_with_a_model_that_has_not_seen_them(
    base: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    records, chain = _records(True), chain_space("three parts")[0]
    examples = examples_of_records(records, VOCABULARY)
    folds = gate.folds(examples)
    present, model, size = tmp_path / "present", load_model(base, VOCABULARY)[0], read_card(base).size
    for folder in (present, *(present / fold_name(fold.number) for fold in folds)):
        save_model(model, folder, VOCABULARY, size, "", {LEARNED: []})
    searched: list[tuple[Path, set[str]]] = []

    def noted(model: Path, rounds: Rounds, spaces: Sequence[DesignSpace], *_: object) -> list[Example]:
        searched.append((model, {_task(one) for one in spaces}))
        return []

    monkeypatch.setattr("host.tuning.learning.searching.lessons_by_search", noted)
    lessons_of_board(records, examples, [*SPACES[:-1], chain], present, seed=0)
    (whole, all_tasks), *of_folds = searched
    parts = {_task(one) for one in chain.parts}
    assert whole == present and parts <= all_tasks and _task(chain) not in all_tasks
    assert [model for model, _ in of_folds] == [present / fold_name(fold.number) for fold in folds]
    of_chain = _fold(chain)
    assert of_chain != _fold(chain.parts[0])
    for fold, (_, tasks) in zip(folds, of_folds, strict=True):
        kept = {_task(one) for one in chain.parts if fold.number not in (of_chain, _fold(one))}
        assert tasks & parts == kept


def test_an_estimate_that_does_not_convince_teaches_nothing(base: Path) -> None:
    records = _records(False)
    assert lessons_of_board(records, examples_of_records(records, VOCABULARY), SPACES, base, seed=0) == {}


def _space(record: Record) -> DesignSpace:
    return next(one for one in SPACES if one.task.workload_hash == record.candidate.workload_hash)
