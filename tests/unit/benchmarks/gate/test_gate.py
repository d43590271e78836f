"""The experiment about the gate of fine-tuning: what counts as true, and what is counted."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.gate.__main__ import beside, by_chance, figures_of, ranked_by, true_of
from benchmarks.gate.false_acceptance import SHUFFLES, accepted_share, gains_of
from benchmarks.gate.recorded import RecordedTask, learned_logs, reversed_times, shuffled
from benchmarks.gate.settings import check_settings
from benchmarks.gate.simulated import simulated_tasks
from host.errors import UserError
from host.learned_estimate.observation import EstimatedProgram
from host.tlm.language.vocabulary import DECIDE
from host.tlm.model.network import load_model, new_model, save_model
from host.tlm.training import gate
from host.tlm.training.fitting import FinetuneOptions
from host.tlm.training.gate import Chosen
from tests.unit.tlm.learning import CHOICES, SIZE, VOCABULARY, example_of, tokens_of


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A network with random weights."""
    folder = tmp_path / "base"
    save_model(new_model(VOCABULARY, SIZE, 0), folder, VOCABULARY, SIZE, "", {})
    return folder


def _task(number: int) -> RecordedTask:
    """A task whose estimate says nothing."""
    known = {
        tokens_of(vectors, rows): {"vectors": vectors, "rows": rows}
        for vectors in CHOICES
        for rows in CHOICES
    }
    example = example_of(9, number, 1)
    programs = tuple(
        EstimatedProgram(
            f"task{number}", known[decided], {"total": 1e-6 * (1.0 + 0.02 * ((7 * place + 5) % 12))}
        )
        for place, (decided, _) in enumerate(example.programs)
    )
    return RecordedTask(
        replace(example, estimates=tuple(one.estimate_s for one in programs)), "tiled", programs
    )


def _line(kind: str, bound: float | None, truth: str, first: float = 1.0) -> dict[str, object]:
    arms = {arm: {"first": 1.0, "best": 1.0} for arm in ("chance", "chance_that", "before_that", "new_that")}
    about = {"kind": kind, "bound": bound, "over_chance": 1.01, "truth": truth}
    return {**about, "first": first, "best": 1.0, "arms": arms}


def test_verdicts_are_counted_by_what_is_true() -> None:
    lines = [
        _line("true", 1.02, "better", 1.21),
        _line("true", 1.005, "better", 1.0),
        _line("true", None, "neither"),
        _line("shuffled", 1.011, "worse"),
    ]
    found = figures_of(lines)
    assert found["true"]["trainings"] == 3 and found["true"]["accepted"] == 1
    assert found["true"]["truth"]["better"] == {"trainings": 2, "accepted": 1}
    assert found["true"]["truth"]["neither"] == {"trainings": 1, "accepted": 0}
    assert found["shuffled"]["truth"]["worse"] == {"trainings": 1, "accepted": 1}
    assert found["true"]["right"] == pytest.approx(2 / 3) and found["true"]["right_where_shown"] == 0.5
    assert found["shuffled"]["right"] == 0.0 and found["true"]["arms"]["chance_that"]["best"]["value"] == 1.0
    assert "recovered" not in found and found["all"]["trainings"] == 4
    assert "false_acceptance" not in found["true"]
    shares = [{"3": 0.02, "20": 0.01}, {"3": 0.04, "22": 0.03}]
    wrong = [{**_line("shuffled", 1.0, "worse"), "false_acceptance": one} for one in shares]
    assert figures_of(wrong)["shuffled"]["false_acceptance"] == pytest.approx({"3": 0.03, "all": 0.02})
    assert 1.06 < found["true"]["first"]["value"] < 1.07


def test_a_folder_goes_on_only_with_the_settings_that_it_was_made_with(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = tmp_path / "trainings.jsonl"
    lines.write_text("{}\n")
    with pytest.raises(UserError, match="made with unknown settings: give another --folder"):
        check_settings(tmp_path, base)
    lines.unlink()
    found = check_settings(tmp_path, base)
    lines.write_text("{}\n")
    assert check_settings(tmp_path, base) == found
    # One of the gate, of the training at the end of a tuning, of one between two batches, of the tasks.
    for name, place in (
        ("gate", "host.tlm.training.gate.LEAST_GAIN"),
        ("between_batches", "host.tuning.learning.finetuning._STEPS"),
        ("false_acceptance", "benchmarks.gate.false_acceptance.SHUFFLES"),
        ("rules", "benchmarks.gate.settings.rule_versions"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, (lambda: {"tiled": 0}) if name == "rules" else 1)
            with pytest.raises(UserError, match=rf"other settings \({name}\): give another --folder"):
                check_settings(tmp_path, base)
    changed = replace(FinetuneOptions(base, base), visits=1)
    monkeypatch.setattr("benchmarks.gate.settings.FinetuneOptions", lambda *places: changed)
    with pytest.raises(UserError, match=r"other settings \(between_batches, last\)"):
        check_settings(tmp_path, base)


def test_wrong_acceptance_is_counted_over_shuffles() -> None:
    generator = np.random.default_rng(0)
    noise = generator.normal(0.0, 0.1, (40, 2, 4000))
    # The mean is zero, and the bound has to be above 1.01: less often than one in twenty.
    assert 0.001 < accepted_share(noise) < 0.03
    # On the threshold itself, about as often as a bound of 95% is wrong.
    threshold = noise + np.log([gate.LEAST_GAIN, 2.0])[None, :, None]
    assert 0.035 < accepted_share(threshold) < 0.065
    assert accepted_share(noise + 0.1) > 0.99
    # What is no faster than chance is refused.
    slow = noise + np.array([0.1, -0.1])[None, :, None]
    assert accepted_share(slow) < 0.01
    assert accepted_share(noise[:2]) == 0.0


def test_a_model_that_chooses_alike_gains_nothing_from_any_shuffle(base: Path) -> None:
    withheld = [replace(_task(number).example, index=number) for number in range(4)]
    old = load_model(base, VOCABULARY)[0]
    for own, chance in gains_of(old, old, withheld, VOCABULARY):
        assert own.shape == (SHUFFLES,) and not own.any()
        # Of times that mean nothing, the most different programs have the fastest: those of chance.
        assert chance.shape == (SHUFFLES,) and chance.mean() < 0.02


def test_a_model_is_better_or_worse_only_where_a_bound_says_so() -> None:
    slow = [Chosen(1.5, 1.1)] * 6
    fast = [Chosen(1.1 + 0.02 * number, 1.0) for number in range(6)]
    mixed = [Chosen(0.7 if number % 2 else 3.0, 1.1) for number in range(6)]
    assert true_of(slow, fast, slow)["truth"] == "better" and true_of(slow, fast, slow)["first"] > 1.2
    assert true_of(fast, slow, slow)["truth"] == "worse"
    assert true_of(slow, mixed, slow)["truth"] == "neither"
    assert true_of(slow, slow, slow)["truth"] == "neither"
    # As fast as chance, and slower than chance.
    assert true_of(slow, fast, fast)["truth"] == "neither"
    assert true_of(slow, slow, fast)["truth"] == "worse"


def test_times_change_hands_and_estimates_stay_with_their_programs() -> None:
    task = _task(1)
    of = {decided: one for (decided, _), one in zip(task.example.programs, task.programs, strict=True)}
    for changed in (reversed_times(task), shuffled(task, random.Random(1))):
        times = [slower for _, slower in changed.example.programs]
        assert times == sorted(times) and times[0] == 1.0
        assert [of[decided] for decided, _ in changed.example.programs] == list(changed.programs)
        assert [one.estimate_s for one in changed.programs] == list(changed.example.estimates)
        assert dict(changed.example.programs) != dict(task.example.programs)
    assert reversed_times(task).example.programs[0][0] == task.example.programs[-1][0]


def test_a_simulated_board_departs_from_its_estimate_in_a_way_that_can_be_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.gate.simulated.TASKS", 30)
    monkeypatch.setattr("benchmarks.gate.simulated._PROGRAMS", 24)
    tasks = simulated_tasks(1, tmp_path / "tasks.jsonl")
    assert len(tasks) > 20 and len({one.example.prompt for one in tasks}) == len(tasks)
    for task in tasks:
        # The quality that a model is asked for comes behind it, once.
        assert VOCABULARY.decode(task.example.prompt)[-1] == DECIDE
        times = [slower for _, slower in task.example.programs]
        assert times == sorted(times) and times[0] == 1.0 and 16 <= len(times) <= 24
        assert [one.estimate_s for one in task.programs] == list(task.example.estimates)
    taught, judged = tasks[:18], tasks[18:]
    before, after = by_chance(judged), by_chance(ranked_by(judged, learned_logs(taught, judged)))
    found = beside(before, {"chance": before, "chance_that": after})
    assert found["chance"] == {"first": 1.0, "best": 1.0} and found["chance_that"]["first"] > 1.1
    # A later call reads what is kept, and another seed is another board.
    monkeypatch.setattr("benchmarks.gate.simulated.TASKS", 0)
    again = simulated_tasks(1, tmp_path / "tasks.jsonl")
    assert [one.example for one in again] == [one.example for one in tasks]
    assert simulated_tasks(2, tmp_path / "others.jsonl") == []
