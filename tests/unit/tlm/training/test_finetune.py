"""Fine-tuning learns what is fast on a board, forgets nothing else, and is used only where it is better."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from host.errors import TlmError
from host.tlm.model import checkpoints
from host.tlm.model.card import CARD, WEIGHTS, read_card
from host.tlm.model.network import load_model
from host.tlm.training import gate
from host.tlm.training.finetune import (
    CANDIDATE,
    WHOLE,
    Example,
    FinetuneOptions,
    FinetuneResult,
    Progress,
    _read_job,
    finetune,
    fold_name,
    main,
    read_result,
    write_job,
)
from host.tlm.training.fitting import LEARNED, Finetuning
from host.tlm.training.replay import REPLAY, read_replay, write_replay
from tests.unit.tlm.hosts import EndingHosts
from tests.unit.tlm.learning import VOCABULARY, example_of, measured


def _options(base: Path, out: Path, **changes: object) -> FinetuneOptions:
    options = FinetuneOptions(base, out, steps=20, learning_rate=1e-2, replay_share=0.5, save_every=5)
    return replace(options, **changes)  # type: ignore[arg-type]


def _run(options: FinetuneOptions, examples: list[Example]) -> tuple[FinetuneResult, list[Progress]]:
    told: list[Progress] = []
    return finetune(options, examples, told.append), told


Good = tuple[FinetuneResult, list[Progress]]


@pytest.fixture(scope="module")
def good(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Good:
    """What right times teach, in a folder that no test changes."""
    return _run(_options(base, tmp_path_factory.mktemp("good") / "tuned"), measured(30))


def _order(checkpoint: Path, examples: list[Example]) -> float:
    model, _ = load_model(checkpoint, VOCABULARY)
    return fmean(math.log(one.first) for one in gate.choices_of(model, VOCABULARY, examples))


def test_right_times_are_learned_and_carry_over_to_other_tasks(base: Path, good: Good) -> None:
    result, told = good
    tuned = result.checkpoint.parent
    assert result.accepted
    assert result.after < result.before - 0.2
    assert (result.learned, result.withheld) == (30, 30)
    assert tuned.name == "tuned" and checkpoints.accepted(tuned) == result.checkpoint
    # Three models that are judged, and the one that is used.
    assert [one.done for one in told] == list(range(1, 81)) and told[0].total == 80
    # Several: of one task, what was right by luck can be lost.
    unseen = [example_of(9, index, 5) for index in range(77, 93)]
    assert _order(result.checkpoint, unseen) < _order(base, unseen) - 0.2
    card = read_card(result.checkpoint)
    assert card.base == read_card(base).weights
    assert card.training["steps"] == 20
    assert not list(tuned.glob("*.pt"))


def test_wrong_times_are_refused_and_the_old_model_stays(base: Path, good: Good, tmp_path: Path) -> None:
    before, _ = good
    shutil.copytree(before.checkpoint.parent, tmp_path / "tuned")
    present = tmp_path / "tuned" / before.checkpoint.name
    # The programs are as many and as likely as those of right times: only their order is wrong.
    options = _options(base, tmp_path / "tuned", present=present, replay=base / REPLAY)
    result, told = _run(options, measured(30, right=False))
    assert not result.accepted
    # Judged by the same wrong times, what was learned from them does not carry over as right ones do.
    assert result.after > before.after + 0.5
    # What is refused is not trained on everything.
    assert told[-1].done == 60
    assert result.checkpoint == present
    assert checkpoints.accepted(tmp_path / "tuned") == present
    result, _ = _run(_options(base, tmp_path / "other"), measured(30, right=False))
    assert not result.accepted and result.checkpoint == base
    assert checkpoints.accepted(tmp_path / "other") is None


def test_the_steps_follow_the_number_of_tasks(base: Path, tmp_path: Path) -> None:
    options = FinetuneOptions(base, tmp_path / "tuned", batch=8, replay_share=0.25, visits=24, most_steps=240)
    # Six measured tasks of each batch, each seen 24 times.
    assert [options.steps_for(tasks) for tasks in (1, 10, 20, 59, 60, 500)] == [10, 40, 80, 236, 240, 240]
    assert options.steps_for(40) == replace(options, replay_share=0.625).steps_for(20)
    assert replace(options, steps=7).steps_for(500) == 7
    assert replace(options, replay_share=1.0).steps_for(3) == 72
    result, told = _run(replace(options, visits=4), measured(30))
    folds = [len(fold.learned) for fold in gate.folds(measured(30))]
    steps = [math.ceil(4 * tasks / 6) for tasks in (*folds, 30)]
    assert told[0].total == sum(steps)
    assert len(told) == sum(steps if result.accepted else steps[:3])
    assert result.steps == steps[3 if result.accepted else 2]


def test_replay_keeps_what_was_known_of_other_boards(base: Path, good: Good, tmp_path: Path) -> None:
    # What the board likes is the opposite of what it has to say of every other one.
    kept, _ = good
    lost, _ = _run(_options(base, tmp_path / "without", replay_share=0.0), measured(30))
    assert lost.forgotten > kept.forgotten + 0.05
    assert kept.forgotten < 0.1


def test_the_model_in_use_is_judged_as_it_was_before_it_saw_the_withheld_tasks(
    base: Path, good: Good, tmp_path: Path
) -> None:
    before, _ = good
    # The same records again: the models of the folds are the same, and no better than themselves.
    again, _ = _run(_options(base, tmp_path / "again", present=before.checkpoint), measured(30))
    assert not again.accepted and again.before == again.after
    # A checkpoint of elsewhere has no such models: it is judged as it is, here as the base.
    alone = tmp_path / "alone"
    shutil.copytree(base, alone)
    other, _ = _run(_options(base, tmp_path / "beside", present=alone), measured(30))
    assert other.accepted and other.before > again.before
    # Those of a fold are looked at, and those of another one are not.
    shutil.copytree(before.checkpoint / "fold-1", alone / "fold-1")
    mixed, _ = _run(_options(base, tmp_path / "mixed", present=alone), measured(30))
    assert again.before < mixed.before < other.before


def test_models_of_folds_that_may_have_learned_what_judges_them_are_not_looked_at(
    base: Path, good: Good, tmp_path: Path
) -> None:
    before, _ = good
    alone, moved, older = (tmp_path / name for name in ("alone", "moved", "older"))
    shutil.copytree(base, alone)
    for folder in (moved, older):
        shutil.copytree(base, folder)
        for number in range(gate.FOLDS):
            # Of another fold, as where tasks have moved.
            source = (number + 1) % gate.FOLDS if folder == moved else number
            shutil.copytree(before.checkpoint / f"fold-{source}", folder / f"fold-{number}")
    for number in range(gate.FOLDS):
        path = older / f"fold-{number}" / CARD
        card = json.loads(path.read_text())
        learned = card["training"].pop("learned")
        assert len(learned) == card["training"]["tasks"]
        path.write_text(json.dumps(card))
    found = [
        _run(_options(base, tmp_path / f"new-{one.name}", present=one), measured(30))[0].before
        for one in (alone, moved, older)
    ]
    assert found[0] == found[1] == found[2] != before.after


def test_too_few_tasks_are_refused_before_anything_is_trained(base: Path, tmp_path: Path) -> None:
    with pytest.raises(TlmError, match="24 measured programs of 2 tasks are too few"):
        _run(_options(base, tmp_path / "none"), measured(2))
    assert not (tmp_path / "none").exists()


def test_what_the_gate_refuses_is_trained_where_it_is_looked_at(base: Path, tmp_path: Path) -> None:
    options = _options(base, tmp_path / "all", always=True)
    result, _ = _run(options, measured(30, right=False))
    assert not result.accepted and read_card(tmp_path / "all" / CANDIDATE).training["tasks"] == 30


class _Cut(Exception):
    pass


def test_an_interrupted_training_ends_like_one_that_was_not(base: Path, good: Good, tmp_path: Path) -> None:
    whole, _ = good

    def cut(progress: Progress) -> None:
        if progress.done == 33:
            raise _Cut

    options = _options(base, tmp_path / "cut")
    with pytest.raises(_Cut):
        finetune(options, measured(30), cut)
    result, told = _run(replace(options, resume=True), measured(30))
    assert told[0].done == 31
    assert (result.checkpoint / WEIGHTS).read_bytes() == (whole.checkpoint / WEIGHTS).read_bytes()
    with pytest.raises(_Cut):
        finetune(options, measured(30), cut)
    with pytest.raises(TlmError, match="choose another folder"):
        finetune(replace(options, resume=True), measured(29), lambda progress: None)
    for change in ({"keep": 3}, {"replay_share": 0.25}, {"steps": 21}):
        with pytest.raises(TlmError, match="choose another folder"):
            finetune(replace(options, resume=True, **change), measured(30), lambda progress: None)
    (tmp_path / "cut" / "training-fold-1.pt").write_bytes(b"nothing")
    with pytest.raises(TlmError, match="damaged"):
        finetune(replace(options, resume=True), measured(30), lambda progress: None)


def test_a_training_whose_host_ends_goes_on_from_its_last_state(
    base: Path, good: Good, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, _ = good
    monkeypatch.setattr("host.tlm.training.on_host._ASK_S", 0.0)
    # After the begin; after the begin and two states; between two calls of which none may come first.
    engine, told = EndingHosts([1, 3, 0, 2]), []
    result = finetune(_options(base, tmp_path / "hosts"), measured(30), told.append, engine)
    assert engine.begun == [0, 0, 10, 15, 0, 0, 0] and engine.kinds == [Finetuning] * 4
    assert [one.done for one in told] == list(range(5, 85, 5))
    assert (result.checkpoint / WEIGHTS).read_bytes() == (whole.checkpoint / WEIGHTS).read_bytes()
    assert not list((tmp_path / "hosts").glob("*.pt"))


def test_a_training_ends_when_its_time_is_over(base: Path, tmp_path: Path) -> None:
    result, told = _run(_options(base, tmp_path / "short", seconds=1e-6), measured(30))
    assert (result.steps, [one.done for one in told]) == (1, [1, 21, 41, 61][: len(told)])


def test_a_time_limit_ends_the_training(base: Path, tmp_path: Path) -> None:
    result, told = _run(_options(base, tmp_path / "tuned", steps=100000, seconds=0.05), measured(30))
    assert result.steps <= len(told) < 1000


def test_a_job_runs_in_a_process_of_its_own(base: Path, tmp_path: Path) -> None:
    job = tmp_path / "job.json"
    write_job(job, _options(base, tmp_path / "tuned"), measured(30))
    with pytest.raises(TlmError, match="no result"):
        read_result(job)
    command = [sys.executable, "-m", "host.tlm.training.finetune", "--job", str(job)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result = read_result(job)
    assert result.accepted and checkpoints.accepted(tmp_path / "tuned") == result.checkpoint


def test_lessons_are_learned_beside_what_was_measured_but_for_tasks_that_judge(
    base: Path, tmp_path: Path
) -> None:
    examples, out = measured(12), tmp_path / "out"
    fold = gate.folds(examples)[0]
    # Some of the tasks of a fold are not measured yet, and judge in a later run.
    lessons = {fold_name(fold.number): measured(20), WHOLE: measured(3)}
    others = [one for one in measured(20) if gate.fold_of(one) != fold.number]
    assert len(fold.learned) < len(others) < 20 - len(fold.withheld)
    options = _options(base, out, steps=2, always=True)
    result = finetune(options, examples, lambda progress: None, lessons=lessons)
    learned = read_card(out / CANDIDATE / fold_name(fold.number)).training
    assert learned["tasks"] == len(fold.learned) + len(others)
    assert set(learned[LEARNED]) == {gate.task_of(one) for one in (*fold.learned, *others)}
    assert read_card(out / CANDIDATE).training["tasks"] == 15
    assert (result.learned, result.withheld) == (12, 12)
    job = tmp_path / "job.json"
    write_job(job, options, examples, lessons)
    assert _read_job(job) == (options, examples, lessons)
    job.write_text(job.read_text().replace('"lessons": {', '"lessons": [], "others": {'))
    with pytest.raises(TlmError, match="no job of fine-tuning"):
        _read_job(job)


def test_errors_of_a_job_are_one_line(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = tmp_path / "job.json"
    job.write_text("{}")
    assert main(["--job", str(job)]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    write_job(job, _options(base, tmp_path / "tuned", start=tmp_path / "nothing"), measured(30))
    assert main(["--job", str(job)]) == 1
    assert "no language model there" in capsys.readouterr().err


def test_replay_files_of_elsewhere_and_damaged_ones_are_refused(base: Path, tmp_path: Path) -> None:
    examples = read_replay(base / REPLAY, VOCABULARY)
    assert len(examples) == 30
    again = tmp_path / REPLAY
    write_replay(again, examples, 30, 0, VOCABULARY)
    assert again.read_bytes() == (base / REPLAY).read_bytes()
    again.write_bytes(again.read_bytes()[:-40])
    with pytest.raises(TlmError, match="install the package again"):
        read_replay(again, VOCABULARY)
    with pytest.raises(TlmError, match="cannot be read"):
        read_replay(tmp_path / "nothing", VOCABULARY)
