"""Pre-training learns, is repeatable, and goes on where it was cut off."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from host.errors import TlmError
from host.gensor import Gensor
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model.card import WEIGHTS, Size
from host.tlm.model.network import load_model
from host.tlm.training.packing import samples_of
from research.pretraining import dataset
from research.pretraining.boards import training_boards
from research.pretraining.dataset import Dataset
from research.pretraining.held_out import anchor_key, is_held_out
from research.pretraining.pretrain import Progress, pretrain
from research.pretraining.training import (
    SENTENCES,
    STATE,
    PretrainOptions,
    Training,
    split,
    trainer_for,
)
from tests.unit.tlm.hosts import EndingHosts

VOCABULARY = Vocabulary()
EXAMPLES = 24


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / SENTENCES
    assert len(list(Dataset(path, 0, VOCABULARY).grow(EXAMPLES, Gensor()))) == EXAMPLES
    return path


def _options(folder: Path, data: Path, steps: int) -> PretrainOptions:
    folder.mkdir(exist_ok=True)
    (folder / SENTENCES).write_bytes(data.read_bytes())
    size = Size(layers=1, heads=2, width=32)
    return PretrainOptions(
        folder, steps, EXAMPLES, resume=True, batch=8, learning_rate=3e-3, warm_up=2, save_every=5, size=size
    )


def test_data_is_the_same_when_it_is_continued(data: Path, tmp_path: Path) -> None:
    path = tmp_path / SENTENCES
    lines = data.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:20]) + lines[20][:30])
    continued = Dataset(path, 0, VOCABULARY)
    assert len(continued.examples) == 19
    list(continued.grow(EXAMPLES, Gensor()))
    assert path.read_bytes() == data.read_bytes()
    assert Dataset(path, 0, VOCABULARY).examples == continued.examples


def test_data_is_the_same_from_several_processes(data: Path, tmp_path: Path) -> None:
    path = tmp_path / SENTENCES
    grown = list(Dataset(path, 0, VOCABULARY).grow(EXAMPLES, Gensor(), jobs=2))
    assert [example.index for example in grown] == list(range(EXAMPLES))
    assert path.read_bytes() == data.read_bytes()


def test_data_of_elsewhere_is_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(TlmError, match="another seed"):
        Dataset(data, 1, VOCABULARY)
    for text in ("{}\n", data.read_text().replace('"prompt"', '"answer"'), data.read_text()[:200] + "\n"):
        path = tmp_path / SENTENCES
        path.write_text(text)
        with pytest.raises(TlmError, match=SENTENCES):
            Dataset(path, 0, VOCABULARY)


def test_held_out_tasks_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    boards = training_boards()
    space, _ = dataset.draw_space(0, 1, boards)
    assert not is_held_out(space.workload)
    own = anchor_key(space.workload)
    monkeypatch.setattr(dataset, "is_held_out", lambda workload: anchor_key(workload) == own)
    example = dataset.make_example(0, 1, boards, Gensor(), VOCABULARY)
    assert example.left_out == "held out"
    assert split([example]) == ([], [])


def test_programs_are_the_teachers_best_first(data: Path) -> None:
    for example in Dataset(data, 0, VOCABULARY).examples:
        if example.programs:
            slower = [value for _, value in example.programs]
            assert slower[0] == 1.0
            assert slower == sorted(slower)
            assert len({tokens for tokens, _ in example.programs}) == len(example.programs)


def test_training_learns_and_its_loss_is_of_the_decisions_only(data: Path, tmp_path: Path) -> None:
    told: list[Progress] = []
    card = pretrain(_options(tmp_path / "a", data, 60), Gensor(), told.append)
    losses = [one.loss for one in told if one.stage == "training"]
    assert len(losses) == 60
    assert losses[0] == pytest.approx(math.log(len(VOCABULARY)), rel=0.1)
    assert losses[-1] < 0.75 * losses[0]
    assert card.training["steps"] == 60
    assert load_model(tmp_path / "a", VOCABULARY)[1] == card
    # The output rows of tokens that only prompts hold get no gradient from a loss on decisions.
    trainer = trainer_for(_options(tmp_path / "a", data, 1), VOCABULARY)
    example = next(one for one in Dataset(data, 0, VOCABULARY).examples if one.programs)
    sample = samples_of(example, VOCABULARY)[0]
    loss = trainer.loss([sample])
    longer = replace(sample, context=(*sample.context[:-1], *sample.context[:1], *sample.context[-1:]))
    assert trainer.loss([sample, longer]) != loss
    alone = trainer.loss([replace(sample, target=sample.target[:1])])
    assert float(alone.detach()) > 0.0


class _Cut(Exception):
    pass


def test_a_training_that_was_cut_off_ends_like_one_that_was_not(data: Path, tmp_path: Path) -> None:
    whole = pretrain(_options(tmp_path / "whole", data, 20), Gensor(), lambda progress: None)

    def cut(progress: Progress) -> None:
        if progress.stage == "training" and progress.done == 13:
            raise _Cut

    options = _options(tmp_path / "cut", data, 20)
    with pytest.raises(_Cut):
        pretrain(options, Gensor(), cut)
    steps: list[int] = []
    again = pretrain(options, Gensor(), lambda progress: steps.append(progress.done))
    assert steps[0] == 11
    assert again.weights == whole.weights
    assert (tmp_path / "cut" / WEIGHTS).read_bytes() == (tmp_path / "whole" / WEIGHTS).read_bytes()


def test_a_training_whose_host_ends_goes_on_from_its_last_state(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = pretrain(_options(tmp_path / "whole", data, 20), Gensor(), lambda progress: None)
    monkeypatch.setattr("host.tlm.training.on_host._ASK_S", 0.0)
    # After the begin; after the begin and two states; between two calls of which none may come first.
    engine = EndingHosts([1, 3, 0, 2])
    monkeypatch.setattr("research.pretraining.pretrain.open_engine", lambda name: engine)
    again = pretrain(_options(tmp_path / "hosts", data, 20), Gensor(), lambda progress: None)
    assert engine.begun == [0, 0, 10, 15] and engine.kinds == [Training]
    assert again.weights == whole.weights


def test_folders_of_other_trainings_are_refused(data: Path, tmp_path: Path) -> None:
    options = _options(tmp_path / "a", data, 5)
    pretrain(options, Gensor(), lambda progress: None)
    with pytest.raises(TlmError, match="--resume"):
        pretrain(replace(options, resume=False), Gensor(), lambda progress: None)
    with pytest.raises(TlmError, match="choose another folder"):
        pretrain(replace(options, batch=4), Gensor(), lambda progress: None)
    (tmp_path / "a" / STATE).write_bytes(b"no state")
    with pytest.raises(TlmError, match="damaged"):
        pretrain(options, Gensor(), lambda progress: None)
    with pytest.raises(TlmError, match="too few"):
        pretrain(replace(_options(tmp_path / "b", data, 5), examples=1), Gensor(), lambda progress: None)
