"""A kit trains where there is no compiler, stops in time and goes on, and ends with a checkpoint."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from host.errors import TlmError
from host.gensor import Gensor
from host.schedules.families import rule_versions
from host.tlm.language.vocabulary import Vocabulary, rule_token
from host.tlm.model.network import load_model
from host.tlm.training import replay
from host.tlm.training.on_host import Advance
from research.pretraining.boards import training_boards
from research.pretraining.dataset import Dataset, make_example
from research.pretraining.kit.__main__ import Limits, _planned, main
from research.pretraining.kit.file import DATA, read_kit
from research.pretraining.kit.prepare import main as prepare
from research.pretraining.kit.renew import main as renew
from research.pretraining.teacher import Teacher
from research.pretraining.training import SENTENCES, STATE, PretrainOptions, StateFile, Training, split

ROOT = Path(__file__).parents[4]
VOCABULARY = Vocabulary()
EXAMPLES = 24
SMALL = ["--layers", "1", "--width", "32", "--batch", "4"]
# What the machine has is PyTorch's environment alone.
WITHOUT = """
import runpy, sys
for name in ("tvm", "tvm_ffi", "transformers", "onnx", "onnxruntime", "typer", "jinja2", "rich", "ray"):
    sys.modules[name] = None
sys.argv[1:] = ARGUMENTS
runpy.run_module("research.pretraining.kit", run_name="__main__")
"""


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kit")
    list(Dataset(folder / SENTENCES, 0, VOCABULARY).grow(EXAMPLES, Gensor()))
    prepare([str(folder), str(folder / "kit")])
    return folder / "kit"


def test_a_kit_trains_where_only_pytorch_is(kit: Path, tmp_path: Path) -> None:
    words = [str(kit), str(tmp_path), "--seconds", "900", "--steps", "8", *SMALL]
    script = WITHOUT.replace("ARGUMENTS", repr(words))
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    model, card = load_model(tmp_path, VOCABULARY)
    assert card.training["steps"] == 8
    # Those of the tasks that were drawn, by the header of the kit: no rule is there to be asked.
    assert card.rules
    assert card.rules.items() <= rule_versions().items()
    assert card.tokens == len(VOCABULARY) == len(model.transformer.wte.weight)


def test_a_training_that_ran_out_of_time_goes_on(kit: Path, tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    words = ["--steps", "12", *SMALL]
    assert main([str(kit), str(whole), "--seconds", "900", *words]) == 0
    plan = json.loads((whole / "plan.json").read_text())
    cut.mkdir()
    (cut / "plan.json").write_text(json.dumps(plan | {"save_every": 5}))
    # The time is over with the first step, and there is nothing to go on from.
    assert main([str(kit), str(cut), "--seconds", "0", *words]) != 0
    state = StateFile(cut / STATE, 15_000_000)
    assert not state.read()
    assert main([str(kit), str(cut), "--seconds", "900", *words]) == 0
    assert load_model(cut, VOCABULARY)[1].weights == load_model(whole, VOCABULARY)[1].weights


def test_a_shipped_sample_gets_the_examples_of_changed_rules_again(
    kit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = [one for one in Dataset(kit.parent / SENTENCES, 0, VOCABULARY).examples if one.programs]
    numbers = {VOCABULARY.number(rule_token(name)): name for name in rule_versions()}
    of_rule = {number: [one for one in examples if number in one.prompt] for number in numbers}
    number = min((one for one in numbers if of_rule[one]), key=lambda one: len(of_rule[one]))
    with monkeypatch.context() as before:
        versions = {**rule_versions(), numbers[number]: 0}
        before.setattr(replay, "rule_versions", lambda: versions)
        replay.write_replay(tmp_path / "old", examples, len(examples), 0, VOCABULARY)
    kept = [one for one in examples if number not in one.prompt]
    assert replay.read_replay(tmp_path / "old", VOCABULARY) == kept
    renew([str(tmp_path / "old"), str(tmp_path / "new")])
    found = {one.index: one for one in replay.read_replay(tmp_path / "new", VOCABULARY)}
    assert found.keys() == {one.index for one in examples}
    assert [found[one.index] for one in kept] == kept
    for one in of_rule[number]:
        again = make_example(0, one.index, training_boards(), Teacher(), VOCABULARY)
        assert found[one.index] == again


class GpuThatWarmsUp:
    """A clock, and how long steps take by it: at first a GPU compiles in each, later in some."""

    def __init__(self) -> None:
        self.now, self.steps = 0.0, 0

    def monotonic(self) -> float:
        return self.now

    def advance(self, steps: int) -> Advance:
        for _ in range(steps):
            self.now += 1.0 if self.steps < 60 or self.steps % 7 == 0 else 0.02
            self.steps += 1
        return Advance(self.steps, 1.0)


@pytest.mark.parametrize("asked", [0, 4000])
def test_steps_are_planned_by_those_after_the_warm_up(
    kit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: int
) -> None:
    clock = GpuThatWarmsUp()
    monkeypatch.setattr("research.pretraining.kit.__main__.time", clock)
    monkeypatch.setattr(Training, "advance", lambda _, steps: clock.advance(steps))
    monkeypatch.setattr(Training, "begin", lambda self, state: None)
    data = read_kit(kit, VOCABULARY)
    trained, withheld = split(data.sentences.examples)
    options = PretrainOptions(tmp_path)
    planned = _planned(options, Limits(400.0, asked), Training(options, trained, withheld), 0.0)
    left = 400.0 - clock.now
    assert planned.steps == (asked or int(0.9 * left / 0.02))
    assert 25.0 / 0.02 - 1 <= planned.save_every <= 25.0 / 0.02


def test_a_state_in_parts_is_the_last_one_written(tmp_path: Path) -> None:
    state = StateFile(tmp_path / "state", 10)
    for content in (bytes(range(35)), b"short"):
        state.write(content)
        assert state.read() == content
        assert all(path.stat().st_size <= 10 for path in tmp_path.iterdir())


def test_damaged_kits_are_refused(kit: Path, tmp_path: Path) -> None:
    data = (kit / DATA).read_bytes()
    for content in (b"", b"no kit", data[:-20]):
        (tmp_path / DATA).write_bytes(content)
        with pytest.raises(TlmError, match="make the kit again"):
            read_kit(tmp_path, VOCABULARY)
