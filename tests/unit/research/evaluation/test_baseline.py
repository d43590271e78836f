"""Files of baselines: there and back, missing, damaged."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tvm_ffi

from host.errors import EdgeError, UserError
from research.evaluation.baseline import baseline_names, read_baseline, write_baseline
from research.evaluation.evaluate import EvaluateOptions, load_baselines
from tests.unit.research.evaluation.cases import baseline, dense_task


def test_everything_comes_back(tmp_path: Path) -> None:
    made = baseline(dense_task(24), dense_task(48, weight=1))
    path = write_baseline(made, tmp_path)
    first = path.read_bytes()
    read = read_baseline(tmp_path, "tiny")
    assert (read.network, read.name, read.threads) == ("tiny", "metaschedule-8", 1)
    assert (read.coverage, read.network_s, read.machine) == (0.8, 1e-3, {"cpu": "test"})
    for one, other in zip(read.tasks, made.tasks, strict=True):
        assert tvm_ffi.structural_equal(one.task.function, other.task.function)
        assert (one.task.name, one.task.weight, one.task.flops) == (
            other.task.name,
            other.task.weight,
            other.task.flops,
        )
        assert one.searches[8] == other.searches[8]
    assert baseline_names(tmp_path) == ("tiny",)
    assert write_baseline(read, tmp_path).read_bytes() == first


def test_a_missing_file_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"research\.baselines --networks gpt2"):
        read_baseline(tmp_path, "gpt2")
    with pytest.raises(UserError, match="does not exist"):
        load_baselines(EvaluateOptions(tmp_path, tmp_path))


def _other_schema(content: dict[str, Any]) -> None:
    content["schema"] = "edgetlm.baseline/0"


def _other_function(content: dict[str, Any]) -> None:
    content["tasks"][0]["function"] = content["tasks"][1]["function"]


def _no_program(content: dict[str, Any]) -> None:
    content["tasks"][0]["searches"]["8"]["records"] = []


def _no_weight(content: dict[str, Any]) -> None:
    del content["tasks"][0]["weight"]


def _torn_function(content: dict[str, Any]) -> None:
    content["tasks"][0]["function"] = content["tasks"][0]["function"][:40]


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (_other_schema, "schema"),
        (_other_function, "hash"),
        (_no_program, "no program of 8 trials"),
        (_no_weight, "weight"),
        (_torn_function, "damaged"),
    ],
)
def test_damaged_files_are_one_clear_line(
    tmp_path: Path, damage: Callable[[dict[str, Any]], None], says: str
) -> None:
    path = write_baseline(baseline(dense_task(24), dense_task(48)), tmp_path)
    content = json.loads(gzip.decompress(path.read_bytes()))
    damage(content)
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    with pytest.raises(EdgeError, match=says) as caught:
        read_baseline(tmp_path, "tiny")
    assert "make it again" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("keep", [0, 10, 200])
def test_a_file_cut_short_is_damaged(tmp_path: Path, keep: int) -> None:
    path = write_baseline(baseline(dense_task()), tmp_path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(EdgeError, match="damaged"):
        read_baseline(tmp_path, "tiny")


def test_baselines_of_different_searches_are_not_mixed(tmp_path: Path) -> None:
    from dataclasses import replace

    write_baseline(baseline(dense_task()), tmp_path)
    write_baseline(replace(baseline(dense_task(), trials=2), network="other"), tmp_path)
    with pytest.raises(UserError, match="different searches"):
        load_baselines(EvaluateOptions(tmp_path, tmp_path))
