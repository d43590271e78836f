"""A folder and lines of the vocabulary are all that a rule needs."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from host.schedules import space_for
from tests.integration.small_models import floats, save
from tests.recipes import ROOT, files, lines, overlay, run
from tests.unit.schedules import functions as fn

RULE = "host/schedules/cpu/stepped/"
TOKENS = "host/tlm/language/tokens.txt"
# What the product knows of a rule, in a process of its own.
USE = """
import sys
from pathlib import Path
import numpy as np
import host.execution.without_torch
from host.records import RecordStore
from host.records.store import profile_data
from host.schedules import space_for
from host.schedules.families import rule_versions
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model.checkpoints import shipped
from host.tlm.model.network import load_model
from sdk.compiler import Bench, design_space, program, propose
from tests.unit.schedules import functions as fn
from tests.unit.schedules.test_families import test_a_decision_has_one_meaning_in_all_rules
from tests.unit.tlm.language import test_vocabulary

assert Path(host.__file__).is_relative_to(sys.argv[1]), host.__file__
board = fn.board("avx2")
a, b = (np.random.default_rng(n).standard_normal((6, 28), dtype="float32") for n in (0, 1))
for threads in (1, 2):
    space = space_for(fn.task(fn.addition(6, 28)), board.hardware, threads)
    assert space.rule.name == "stepped", space.rule.name
    for values in ({"written": 1}, {"written": 8}):
        values |= {"parallel": threads} if threads > 1 else {}
        found = fn.run(program(space, values), [a, b], (6, 28), board.tvm_target)
        np.testing.assert_array_equal(found, np.maximum(a + b, 0))
    fn.assert_its_trace_is_the_program(space)
assert space_for(fn.task(fn.softmax(4, 32)), board.hardware).rule.name == "rowwise"
assert rule_versions()["stepped"] == 1
with Bench(threads=1, records="records.sqlite") as bench:
    space = design_space(fn.task(fn.addition(6, 28)), bench.profile)
    [candidate] = propose(space, bench.profile)
    assert bench.measure(space, candidate).measurement is not None
    data = profile_data(bench.profile)
with RecordStore("records.sqlite") as store:
    key = space.task.workload_hash
    assert store.best_of({key: ("stepped", 1)}, data)[key].candidate.decisions == candidate.decisions
    assert store.best_of({key: ("stepped", 2)}, data) == {}
test_a_decision_has_one_meaning_in_all_rules()
test_vocabulary.test_every_rule_has_a_token()
test_vocabulary.test_every_decision_has_a_token_of_the_class_that_its_rule_declares()
test_vocabulary.test_tokens_are_listed_once_and_with_a_class()
test_vocabulary.test_the_shipped_weights_are_of_the_first_tokens_of_the_list()
_, card = load_model(shipped(), Vocabulary())
assert card.untrained[-2:] == ("rule:stepped", "written="), card.untrained
"""
CHECK = """
from tests.unit.tlm.language import test_vocabulary
test_vocabulary.test_every_rule_has_a_token()
"""


def followed() -> dict[str, str]:
    """What the recipe adds to the product."""
    added = {path: text for path, text in files().items() if path.startswith(RULE)}
    return {**added, TOKENS: (ROOT / TOKENS).read_text() + lines()[TOKENS]}


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The product as it is after the recipe."""
    folder = tmp_path_factory.mktemp("product")
    overlay(folder, followed())
    return folder


def model_in(folder: Path) -> Path:
    nodes = [onnx.helper.make_node("Add", ["x", "z"], ["s"]), onnx.helper.make_node("Relu", ["s"], ["y"])]
    shapes = [floats("x", 6, 28), floats("z", 6, 28)], [floats("y", 6, 28)]
    return save(folder / "sum.onnx", nodes, *shapes)


def test_the_recipe_is_two_files_and_two_lines() -> None:
    """As docs/extending.md counts it."""
    assert len(followed()) == 3
    assert len(lines()[TOKENS].splitlines()) == 2


def test_a_task_gets_its_program_and_is_explained(product: Path, tmp_path: Path) -> None:
    model, bundle = model_in(tmp_path), tmp_path / "bundle"
    text = f"-m sdk.cli compile {model} -o {bundle} --threads 1 --backend tvm"
    done = run(product, tmp_path, *text.split())
    assert done.returncode == 0, done.stderr
    [kernel] = json.loads((bundle / "manifest.json").read_text())["kernels"]
    assert (kernel["rule"], kernel["source"], kernel["decisions"]) == ("stepped", "gensor", {"written": 8})
    explained = run(product, tmp_path, *f"-m sdk.cli explain {bundle} --task {kernel['name']}".split())
    assert explained.returncode == 0, explained.stderr
    assert f"{kernel['name']}: gensor, rule stepped" in explained.stdout
    assert "decided   written 8" in explained.stdout


def test_its_programs_records_and_words_are_known(product: Path, tmp_path: Path) -> None:
    done = run(product, tmp_path, "-c", USE, str(product))
    assert done.returncode == 0, done.stderr


def test_without_the_lines_they_are_named(tmp_path: Path) -> None:
    product = tmp_path / "product"
    product.mkdir()
    overlay(product, {path: text for path, text in followed().items() if path != TOKENS})
    done = run(product, tmp_path, "-c", CHECK)
    assert done.returncode == 1
    assert f"append to {TOKENS}, each with its class:\n{lines()[TOKENS].splitlines()[0]}" in done.stderr


def test_without_the_folder_another_rule_makes_the_program() -> None:
    board = fn.board("avx2")
    assert space_for(fn.task(fn.addition(6, 28)), board.hardware).rule.name == "injective"
