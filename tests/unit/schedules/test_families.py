"""A new family is one folder or an installed package, and no other file is touched."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from host.errors import ScheduleError
from host.schedules import space_for
from host.schedules.api import CPU, GPU
from host.schedules.families import installed_rules, rule_versions
from host.tlm.model.rule_versions import known_versions
from tests.unit.schedules import functions as fn

# The whole of a family: elementwise tasks in one loop, whose innermost part is written out.
EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "extensions" / "rule" / "edgetlm_example_rule.py"
# What a user of the package does, in a process that has it installed.
USE = """
import numpy as np
from host.gensor import Gensor
from host.model import DeviceProfile
from host.schedules import scheduled_function, space_for
from host.schedules.families import rule_versions
from tests.unit.schedules import functions as fn

board = fn.board("avx2")
space = space_for(fn.task(fn.addition(6, 28)), board.hardware)
assert space.rule.name == "unrolled", space.rule.name
[candidate] = Gensor().propose(space, DeviceProfile("test", board, board.hardware, 1), (), 1, 0)
assert (candidate.rule, candidate.space_version, candidate.value("written")) == ("unrolled", 1, 8)
[first] = Gensor(tree=True).propose(space, DeviceProfile("test", board, board.hardware, 1), (), 1, 0)
assert first.value("written") == 1, "the tree interleaves nothing"
a, b = (np.random.default_rng(n).standard_normal((6, 28), dtype="float32") for n in (0, 1))
found = fn.run(scheduled_function(space.apply(candidate)), [a, b], (6, 28), board.tvm_target)
np.testing.assert_array_equal(found, np.maximum(a + b, 0))
assert space_for(fn.task(fn.softmax(4, 32)), board.hardware).rule.name == "rowwise"
assert rule_versions()["unrolled"] == 1
"""


def _install(folder: Path, rule: str) -> None:
    """What an installer leaves of a package with one entry point."""
    (folder / "unrolled_rule.py").write_text(rule)
    metadata = folder / "unrolled_rule-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: unrolled-rule\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[edgetlm.rules]\nunrolled = unrolled_rule:RULE\n")


def _run(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.path.insert(0, {str(folder)!r})\nimport host.execution.without_torch\n{program}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_a_rule_of_an_installed_package_makes_programs(tmp_path: Path) -> None:
    _install(tmp_path, EXAMPLE.read_text(encoding="utf-8"))
    done = _run(tmp_path, USE)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("RULE = object()", "is no object of host.schedules.api.Rule"),
        ("raise OSError('no such table')", "does not load (OSError: no such table)"),
        ("from host.schedules.cpu.tiled.rule import RULE", "there is a rule 'tiled' already"),
    ],
)
def test_a_rule_that_cannot_be_used_is_named(rule: str, said: str, tmp_path: Path) -> None:
    _install(tmp_path, rule)
    done = _run(tmp_path, "from host.schedules.families import installed_rules; installed_rules()")
    last = done.stderr.strip().splitlines()[-1]
    assert "UserError: rule unrolled of unrolled-rule" in last
    assert said in last


def test_a_decision_without_choices_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing could be drawn of it."""
    board = fn.board("avx2")
    [rule] = [one for one in installed_rules() if one.name == "tiled" and one.processor == CPU]
    choices = rule.choices

    def without_vectors(*given: Any) -> dict[str, tuple[int, ...]]:
        return {**choices(*given), "vectors": ()}

    monkeypatch.setattr(type(rule), "choices", lambda self, *given: without_vectors(*given))
    with pytest.raises(ScheduleError, match="rule tiled leaves no choice of vectors for product"):
        space_for(fn.task(fn.dense(16, 64, 64), "product"), board.hardware, rules=[rule])


def test_folders_are_families_in_the_order_of_their_priorities() -> None:
    folders = {
        (processor, path.parent.name)
        for processor, name in ((CPU, "cpu"), (GPU, "cuda"))
        for path in (Path(__file__).parents[3] / "host" / "schedules" / name).glob("*/rule.py")
    }
    rules = installed_rules()
    assert {(rule.processor, rule.name.removeprefix("cuda_")) for rule in rules} >= folders
    assert len({rule.name for rule in rules}) == len(rules)
    assert [rule.priority for rule in rules] == sorted(rule.priority for rule in rules)


def test_a_decision_has_one_meaning_in_all_rules() -> None:
    """Its name is one word of the tensor language, whichever rule's it is."""
    classes: dict[str, set[str]] = {}
    for rule in installed_rules():
        for kind in rule.decisions:
            classes.setdefault(kind.name, set()).add(kind.words)
    assert {name: found for name, found in classes.items() if len(found) > 1} == {}


def test_the_versions_that_need_no_compiler_are_those_of_the_rules() -> None:
    assert known_versions() == rule_versions()
