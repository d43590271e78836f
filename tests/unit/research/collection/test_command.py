"""`sdk tlm collect` on this machine: programs of a model's kernels in a file, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from research.collection.collect import SWEEP
from research.collection.dataset import read_programs
from sdk.cli.main import main
from tests.integration.small_models import floats, save


@pytest.fixture
def model(tmp_path: Path) -> Path:
    weights = np.random.default_rng(0).normal(size=(64, 48)).astype("float32")
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    return save(tmp_path / "dense.onnx", [node], [floats("x", 32, 64)], [floats("y", 32, 48)], {"w": weights})


def test_programs_of_a_model_are_collected_once(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["tlm", "collect", str(model), "--out", str(tmp_path / "programs.jsonl"), "--sweeps", "1"]
    assert main(command) == 0
    programs = list(read_programs(tmp_path / "programs.jsonl"))
    assert SWEEP // 2 <= len(programs) <= SWEEP
    assert {program.model for program in programs} == {"dense"}
    assert all(program.seconds > 0 for program in programs)
    assert f"measured  {len(programs)} programs" in capsys.readouterr().out
    assert main(command) == 0
    assert "measured  0 programs" in capsys.readouterr().out


def test_a_missing_model_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tlm", "collect", str(tmp_path / "no.onnx"), "--out", str(tmp_path / "programs.jsonl")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "no.onnx" in line
    assert not (tmp_path / "programs.jsonl").exists()
