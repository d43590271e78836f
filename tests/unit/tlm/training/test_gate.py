"""What decides whether a fine-tuned model is used."""

from __future__ import annotations

from dataclasses import replace

import pytest

from host.errors import TlmError
from host.tlm.training import gate
from host.tlm.training.example import Example
from tests.unit.tlm.learning import VOCABULARY, example_of, measured, tokens_of


def test_each_task_is_withheld_once_and_stays_in_its_fold_when_more_is_measured() -> None:
    few, many = gate.folds(measured(30)), gate.folds(measured(60))
    assert sorted(one.index for fold in few for one in fold.withheld) == list(range(30))
    for before, after in zip(few, many, strict=True):
        assert set(before.withheld) <= set(after.withheld) and before.number == after.number
        assert {*before.learned, *before.withheld} == set(measured(30))
    twice = replace(measured(60)[0], index=99)
    for fold in gate.folds([*measured(60), twice]):
        assert not {one.prompt for one in fold.learned} & {one.prompt for one in fold.withheld}


def test_a_calibration_moves_no_task_to_another_fold() -> None:
    before = measured(30)
    after = [
        replace(one, prompt=example_of(8, one.index, 1).prompt)
        for one in before
        if one.prompt != example_of(8, one.index, 1).prompt
    ]
    assert len(after) == 30
    assert list(map(gate.fold_of, before)) == list(map(gate.fold_of, after))
    # The same tasks with both descriptions stay together, and are no more tasks.
    for fold in gate.folds([*before, *after]):
        assert not set(map(gate.task_of, fold.learned)) & set(map(gate.task_of, fold.withheld))
    with pytest.raises(TlmError, match="too few"):
        gate.folds([*before[:2], *after[:2]])


def test_a_task_with_one_program_teaches_and_judges_nothing() -> None:
    tasks = measured(30)
    tasks[0] = replace(tasks[0], programs=tasks[0].programs[:1])
    folds = gate.folds(tasks)
    assert all(tasks[0] in fold.learned and tasks[0] not in fold.withheld for fold in folds)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_few_tasks_are_too_few_for_a_bound(count: int) -> None:
    with pytest.raises(TlmError, match=f"{12 * count} measured programs of {count} tasks are too few"):
        gate.folds(measured(count))


def _model_that_prefers(example: Example, order: list[int]) -> list[float]:
    """Log-probabilities with which the programs are likely in this order, far apart."""
    logs = [0.0] * len(order)
    for place, number in enumerate(order):
        logs[number] = -20.0 * place
    return logs


def test_what_is_judged_is_the_program_that_a_deployment_takes() -> None:
    example = example_of(9, 1, 1)
    count = len(example.programs)
    good = gate.chosen_of(example, _model_that_prefers(example, list(range(count))), VOCABULARY)
    bad = gate.chosen_of(example, _model_that_prefers(example, list(reversed(range(count)))), VOCABULARY)
    slowest = example.programs[-1][1]
    assert (good.first, bad.first) == (1.0, pytest.approx(slowest))
    # One that draws all programs alike leaves the choice to the estimate.
    known = replace(example, estimates=tuple(slower for _, slower in example.programs))
    wrong = replace(example, estimates=tuple(1.0 / slower for _, slower in example.programs))
    alike = [0.0] * count
    assert gate.chosen_of(known, alike, VOCABULARY).first < 1.2
    assert gate.chosen_of(wrong, alike, VOCABULARY).first > 0.8 * slowest
    assert gate.chosen_of(wrong, alike, VOCABULARY).best < gate.chosen_of(wrong, alike, VOCABULARY).first
    # What a model never draws is never taken, however short its estimate.
    never = [-1e4, *[0.0] * (count - 1)]
    assert gate.chosen_of(known, never, VOCABULARY).first > 1.0


def test_a_model_that_is_sure_of_itself_is_judged_by_ten_different_programs() -> None:
    example = example_of(9, 1, 1)
    example = replace(example, estimates=tuple(slower for _, slower in example.programs))
    count = len(example.programs)
    # Each program is twice as likely as the next faster one: at one temperature, five would be drawn.
    sure = gate.chosen_of(example, [0.7 * place for place in range(count)], VOCABULARY)
    assert count == 12 and 1.0 < sure.best < example.programs[3][1] < example.programs[5][1]
    # A model that cannot draw more is not asked for ever.
    surer = gate.chosen_of(example, [1e4 * place for place in range(count)], VOCABULARY)
    assert surer.first == surer.best == pytest.approx(example.programs[-1][1])


def test_a_gain_below_one_per_cent_is_too_little() -> None:
    old = [gate.Chosen(2.0, 1.5)] * 9
    for gain, accepted in ((1.005, False), (1.05, True)):
        found = gate.compare(
            old, [gate.Chosen(2.0 / gain, 1.5 / gain + 1e-4 * number) for number in range(9)]
        )
        assert found.bound is not None and found.bound > 1.0 and found.accepted == accepted
    assert found.why.endswith("1.01 is needed")


def test_what_chance_reaches_too_was_not_learned() -> None:
    old = [gate.Chosen(2.0, 1.5)] * 9
    new = [gate.Chosen(1.6 + 0.01 * number, 1.4) for number in range(9)]
    chance = [gate.Chosen(1.61, 1.4 + 0.001 * number) for number in range(9)]
    assert gate.compare(old, new).accepted
    verdict = gate.compare(old, new, chance)
    assert not verdict.accepted and verdict.over_chance is not None and verdict.bound is not None
    assert verdict.over_chance < 1.0 < gate.LEAST_GAIN < verdict.bound
    assert f"{verdict.over_chance:.3f} of chance, 1 is needed" in verdict.why
    assert gate.compare(old, new, old).accepted
    # A slow model in use is no reason to take one that has learned nothing.
    assert not gate.compare(old, chance, chance).accepted


def test_chance_does_not_know_which_program_is_the_fastest() -> None:
    programs = tuple((tokens_of(number, 1), float(number)) for number in range(1, 61))
    estimates = tuple(slower for _, slower in programs)
    examples = [
        replace(example_of(9, number, 1), programs=programs, estimates=estimates) for number in range(9)
    ]
    found = gate.by_chance(examples, VOCABULARY)
    # The estimate is right, but the fastest of 60 is seldom among 32 draws.
    assert all(1.2 < one.first < 4.0 for one in found)


def test_only_a_bound_above_one_is_better() -> None:
    old = [gate.Chosen(2.0, 1.5)] * 4
    better = gate.compare(old, [gate.Chosen(1.6 + 0.1 * number, 1.4) for number in range(4)])
    assert better.accepted and better.after < better.before
    assert "on 4 withheld tasks first programs are 1.1" in better.why and better.why.count("\n") == 0
    doubtful = gate.compare(old, [gate.Chosen(1.0, 1.5), *[gate.Chosen(2.2, 1.5)] * 3])
    assert doubtful.first.value > 1.0 and not doubtful.accepted
    assert not gate.compare(old, old).accepted
    few = gate.compare(old[:2], [gate.Chosen(1.0, 1.0)] * 2)
    assert not few.accepted and "too few tasks" in few.why


def test_many_programs_of_a_task_are_thinned_out_from_the_fastest_to_the_slowest() -> None:
    programs = tuple((tokens_of(number, 1), 1.0 + number) for number in range(300))
    estimates = tuple(float(number + 1) for number in range(300))
    thinned = gate.thinned(Example(0, example_of(9, 1, 1).prompt, programs, estimates=estimates))
    assert [slow for _, slow in thinned.programs] == list(thinned.estimates)
    assert len(thinned.programs) == 64
    assert (thinned.programs[0], thinned.programs[-1]) == (programs[0], programs[-1])
    slower = [time for _, time in thinned.programs]
    assert slower == sorted(set(slower))
