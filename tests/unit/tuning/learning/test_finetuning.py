"""The loop with a real language model, very small, and real fine-tuning of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from host.errors import TlmError
from host.gensor import Gensor
from host.records import RecordStore
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model.card import WEIGHTS, Size, read_card
from host.tlm.model.checkpoints import model_for
from host.tlm.model.network import new_model, save_model
from host.tlm.proposer import Tlm
from host.tlm.training.fitting import FinetuneOptions
from host.tlm.training.record_examples import examples_of_records
from host.tlm.training.replay import REPLAY, read_replay, write_replay
from host.tuning.learning.finetuning import FinetuneTrainer
from tests.unit.tuning.simulated import Skilled, different_tasks, profile
from tests.unit.tuning.test_loop import Listening, options, records, run


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the records of 40 random programs."""
    folder = tmp_path_factory.mktemp("measured")
    run(folder, options(trials=40, batch=20), proposers=(Skilled("random", 1),), tasks=different_tasks())
    return folder


@pytest.fixture
def base(measured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A shipped model with random weights."""
    folder, vocabulary, size = tmp_path / "shipped", Vocabulary(), Size(layers=1, heads=1, width=32)
    save_model(new_model(vocabulary, size, 0), folder, vocabulary, size, "", {})
    examples = examples_of_records(records(measured), vocabulary)
    write_replay(folder / REPLAY, examples, 8, 0, vocabulary)
    monkeypatch.setattr("host.tlm.model.checkpoints.SHIPPED", folder)
    return folder


def test_the_loop_learns_and_says_whose_each_program_is(measured: Path, base: Path, tmp_path: Path) -> None:
    shutil.copy(measured / "r.sqlite", tmp_path / "r.sqlite")
    digest = read_card(base).weights
    listening = Listening()
    spaces = [one.space for one in different_tasks()]
    with FinetuneTrainer(
        profile(), tmp_path, 0, 1, True, steps=2, last_steps=8, root=tmp_path / "models", spaces=spaces
    ) as trainer:
        result = run(
            tmp_path,
            options(trials=49, batch=3, concurrent=True, bases={"tlm": digest}),
            proposers=(Gensor(), Tlm(base)),
            trainer=trainer,
            listener=listening,
            tasks=different_tasks(),
        )
    assert listening.notes == []
    assert (result.trials, result.measured_now) == (49, 9)
    assert trainer.learned_from() == 49
    new = records(tmp_path)[40:]
    assert {one.candidate.proposer for one in new} == {"gensor", "tlm"}
    assert all(one.origin.base is None for one in new if one.candidate.proposer == "gensor")
    first, last = result.trainings
    # The first two batches are of the model in use, the third of the one that learned from the first.
    made = {one.origin.batch: one.origin.base for one in new if one.candidate.proposer == "tlm"}
    assert made.items() <= {2: digest, 3: digest, 4: first.digest}.items()
    assert listening.reports[-1].loss == last.after
    used = model_for(profile(), tmp_path / "models")
    assert read_card(used).weights == last.digest
    # One is used where it beat the other, and only there.
    assert (first.proposer is not None) == (first.digest != digest)
    assert (last.proposer is not None) == (last.digest != first.digest)


def test_a_training_that_nobody_waits_for_ends(measured: Path, base: Path, tmp_path: Path) -> None:
    trainer = FinetuneTrainer(profile(), tmp_path, steps=100_000, root=tmp_path / "models")
    assert trainer.start(records(measured)[:20], last=False, seconds=0.0) is None, "too few to withhold any"
    task = records(measured)[0].candidate.workload_hash
    alone = [one for one in records(measured) if one.candidate.workload_hash == task]
    assert trainer.start(alone * 4, last=False, seconds=0.0) is None, "of one task"
    training = trainer.start(records(measured), last=False, seconds=0.0)
    assert training is not None
    assert trainer.learned_from() == 0
    training.cancel()
    training.cancel()
    with pytest.raises(TlmError):
        training.result(lambda done, total: None)
    trainer.close()
    assert model_for(profile(), tmp_path / "models") == base


def test_the_last_training_plans_the_steps_that_fit_into_its_time(
    measured: Path, base: Path, tmp_path: Path
) -> None:
    known = records(measured)

    def planned() -> dict[str, Any]:
        return json.loads((tmp_path / f"finetune-{len(known)}.json").read_text())["options"]  # type: ignore[no-any-return]

    with FinetuneTrainer(profile(), tmp_path, steps=4, root=tmp_path / "models") as trainer:
        first = trainer.start(known, last=False, seconds=0.0)
        assert first is not None and (planned()["steps"], planned()["keep"]) == (4, 4)
        first.result(lambda done, total: None)
        assert first.seconds_of_step > 0.0
        # As much time as 4 trainings of 12 steps take, twice: half is for the comparison. Each of these steps
        # learns up to 8 programs of 6 tasks and repeats 2 tasks; between batches, 4 of 4, and repeats 4.
        counts = [len(one.programs) for one in examples_of_records(known, Vocabulary())]
        repeated = [len(one.programs) for one in read_replay(base / REPLAY, Vocabulary())]
        whole, some = (sum(min(count, most) for count in counts) / len(counts) for most in (8, 4))
        again = sum(repeated) / len(repeated)
        larger = (6 * whole + 2 * again) / (4 * some + 4 * again)
        assert larger != pytest.approx(1.0, abs=0.1)
        last = trainer.start(known, last=True, seconds=2 * 4 * 12.5 * larger * first.seconds_of_step)
        assert last is not None and (planned()["steps"], planned()["most_steps"]) == (0, 12)
        last.cancel()
        endless = FinetuneOptions(Path(), Path())
        last = trainer.start(known, last=True, seconds=0.0)
        assert last is not None and planned()["most_steps"] == endless.most_steps
        last.cancel()
        tasks = len(examples_of_records(known, Vocabulary()))
        assert trainer.reserve_s(8.0) == pytest.approx(8.0 * larger * endless.steps_for(tasks) / 4)


def test_a_cluster_that_does_not_answer_fails_the_training_alone(
    measured: Path, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 64)
    models = tmp_path / "models"
    with FinetuneTrainer(profile(), tmp_path, root=models, cluster="ray://127.0.0.1:9") as trainer:
        training = trainer.start(records(measured), last=False, seconds=0.0)
        assert training is not None
        with pytest.raises(TlmError, match=r"the cluster's head 127\.0\.0\.1:9 does not answer"):
            training.result(lambda done, total: None)
    assert model_for(profile(), models) == base


def test_damaged_weights_are_told_of_and_measuring_goes_on(base: Path, tmp_path: Path) -> None:
    (base / WEIGHTS).write_bytes((base / WEIGHTS).read_bytes()[:1000])
    listening = Listening()
    with FinetuneTrainer(profile(), tmp_path, root=tmp_path / "models") as trainer:
        result = run(
            tmp_path,
            options(trials=26, batch=26),
            proposers=(Gensor(), Tlm(base)),
            trainer=trainer,
            listener=listening,
            tasks=different_tasks(),
        )
    assert result.trials == 26
    with RecordStore(tmp_path / "r.sqlite") as store:
        assert {one.candidate.proposer for one in store} == {"gensor"}
    assert len(listening.notes) == 2
    assert all(WEIGHTS in text for text in listening.notes)
    assert listening.notes[0].startswith("tlm proposes nothing: ")
    assert listening.notes[1].startswith("the training failed: ")
