"""What is shipped: a checkpoint of a pre-training, clean of held-out tasks, with a card that describes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from host.errors import TlmError
from host.gensor import Gensor
from host.tlm.language import vocabulary
from host.tlm.language.sentence import decode
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model.card import CARD, WEIGHTS, Size
from host.tlm.model.checkpoints import SHIPPED
from host.tlm.model.network import load_model, new_model, save_model
from host.tlm.training.replay import REPLAY, read_replay
from research.pretraining import package as packaging
from research.pretraining.dataset import Dataset
from research.pretraining.held_out import key_of_axes
from research.pretraining.package import package
from research.pretraining.training import SENTENCES
from sdk.cli.main import main

VOCABULARY = Vocabulary()
SIZE = Size(layers=1, heads=1, width=32)
HISTORY = {
    "seed": 3,
    "steps": 7,
    "batch": 16,
    "learning_rate": 0.001,
    "tasks": 4,
    "held_out": 0,
    "programs": 24,
    "loss": 1.25,
    "withheld_loss": 1.5,
}


@pytest.fixture(scope="module")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("data") / SENTENCES
    assert len(list(Dataset(path, 3, VOCABULARY).grow(4, Gensor()))) == 4
    return path.read_bytes()


@pytest.fixture
def trained(sentences: bytes, tmp_path: Path) -> Path:
    folder = tmp_path / "trained"
    save_model(new_model(VOCABULARY, SIZE, 0), folder, VOCABULARY, SIZE, "", HISTORY)
    (folder / SENTENCES).write_bytes(sentences)
    return folder


def test_the_folder_holds_weights_card_and_a_sample(trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    card = package(trained, out, replayed=2)
    assert load_model(out, VOCABULARY)[1] == card
    assert len(read_replay(out / REPLAY, VOCABULARY)) == 2
    assert {path.name for path in out.iterdir()} == {WEIGHTS, CARD, REPLAY, packaging.README}
    text = (out / packaging.README).read_text()
    command = "sdk tlm pretrain --out DIR --seed 3 --steps 7 --examples 4 --layers 1 --width 32"
    for said in (command, card.weights, "24 programs", "1.25", "1.5", "BERT-base", "without an evaluation"):
        assert said in text


def test_the_figures_of_an_evaluation_are_in_the_card(trained: Path, tmp_path: Path) -> None:
    figures = {
        "baseline": "metaschedule-256",
        "networks": {
            "resnet50": {
                "coverage": 0.81,
                "budgets": {"0": {"gensor": 0.912, "tlm": 0.871}, "10": {"gensor": None, "tlm": 1.05}},
            },
            "gpt2": {"error": "no task applies"},
        },
    }
    (tmp_path / "figures.json").write_text(json.dumps(figures))
    package(trained, tmp_path / "out", tmp_path / "figures.json")
    lines = (tmp_path / "out" / packaging.README).read_text().splitlines()
    assert "| network | part | measurements | tlm | gensor |" in lines
    assert "| resnet50 | 81% | 0 | 0.871 | 0.912 |" in lines
    assert "| resnet50 | 81% | 10 | 1.050 | - |" in lines
    assert "- not evaluated: gpt2: no task applies" in lines
    (tmp_path / "figures.json").write_text("[]")
    with pytest.raises(TlmError, match="not what"):
        package(trained, tmp_path / "out", tmp_path / "figures.json")


def test_sentences_of_held_out_tasks_are_refused(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = next(one for one in Dataset(trained / SENTENCES, 3, VOCABULARY).examples if one.programs)
    words = VOCABULARY.decode([*example.prompt, VOCABULARY.number("quality:0"), *example.programs[0][0]])
    task = decode(words).task
    [kind] = [stage.kind for stage in task.stages if stage.anchor]
    key = key_of_axes(kind, [(axis.extent, axis.reduce) for axis in task.axes])
    monkeypatch.setattr(packaging, "held_out_anchors", lambda: {"Some-Network": (key,)})
    with pytest.raises(TlmError, match=f"example {example.index} .*Some-Network"):
        package(trained, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_shipped_is_refused(trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    model = new_model(VOCABULARY, SIZE, 0)
    save_model(model, trained, VOCABULARY, SIZE, "base", HISTORY)
    with pytest.raises(TlmError, match="belongs to one board"):
        package(trained, out)
    save_model(model, trained, VOCABULARY, SIZE, "", {"seed": 3})
    with pytest.raises(TlmError, match="lacks steps"):
        package(trained, out)
    save_model(model, trained, VOCABULARY, SIZE, "", HISTORY)
    (trained / SENTENCES).unlink()
    with pytest.raises(TlmError, match="no such file"):
        package(trained, out)


def test_a_training_of_before_the_vocabulary_grew_can_be_shipped_but_not_continued(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vocabulary, "_ENTRIES", (*vocabulary._ENTRIES, ("rule:unheard", "rule")))
    assert package(trained, tmp_path / "out").tokens == len(VOCABULARY)
    assert load_model(tmp_path / "out", Vocabulary())[1].untrained == ("rule:unheard",)
    with pytest.raises(TlmError, match="there are more tokens or rules since"):
        next(Dataset(trained / SENTENCES, 3, Vocabulary()).grow(5, Gensor()))


def test_the_command_writes_where_it_is_told(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(SHIPPED.iterdir()) if SHIPPED.exists() else []
    assert main(["tlm", "package", str(trained), "--out", str(tmp_path / "out")]) == 0
    assert str(tmp_path / "out") in capsys.readouterr().out
    assert (sorted(SHIPPED.iterdir()) if SHIPPED.exists() else []) == before
    assert main(["tlm", "package", str(tmp_path / "nothing")]) == 1
    assert "no language model there" in capsys.readouterr().err
