"""Figures of numeric types on an emulated board."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper, numpy_helper, save

from benchmarks.emulation import numeric_types
from benchmarks.emulation.numeric_types import counted, figures_of, main, right, verification_of, with_ratios
from benchmarks.instructions.whole_models import CountedKernel
from benchmarks.result_file import read_result

ROWS, DEPTH, COLUMNS = 8, 32, 64


def _dense(path: Path) -> Path:
    """Two dense layers, the second of which does not read an input of the model."""
    draw = np.random.default_rng(0)
    weights = {
        "first": draw.normal(size=(DEPTH, DEPTH)).astype("float32"),
        "second": draw.normal(size=(DEPTH, COLUMNS)).astype("float32"),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "first"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "second"], ["y"]),
    ]
    values = [
        helper.make_tensor_value_info(name, 1, shape)
        for name, shape in (("x", [ROWS, DEPTH]), ("y", [ROWS, COLUMNS]))
    ]
    constants = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    model = helper.make_model(
        helper.make_graph(nodes, "dense", values[:1], values[1:], constants),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    save(model, str(path))
    return path


def test_kernels_are_counted_one_by_one_and_in_halves_they_take_fewer(tmp_path: Path) -> None:
    path = _dense(tmp_path / "dense.onnx")
    single, half = (counted(path, "raspberry_pi_5", dtype) for dtype in ("fp32", "fp16"))
    for found in (single, half):
        assert found["instructions"] == sum(one["calls"] * one["instructions"] for one in found["kernels"])
        assert found["instructions"] == sum(found["rules"].values())
    # A multiply-add for each vector of four at the very least.
    assert single["instructions"] > ROWS * DEPTH * (DEPTH + COLUMNS) / 4
    assert half["rules"]["half_sums"] < single["instructions"]


def test_a_model_that_cannot_be_counted_has_the_reason(tmp_path: Path) -> None:
    path = _dense(tmp_path / "dense.onnx")
    assert "aarch64 only" in counted(path, "visionfive2", "fp32")["error"]


def test_figures_are_those_of_all_calls() -> None:
    kernels = [
        CountedKernel("a", "tiled", 3, 100),
        CountedKernel("b", "", 1, 40),
        CountedKernel("c", "tiled", 1, 5),
    ]
    found = figures_of(kernels)
    assert found["instructions"] == 345
    assert found["rules"] == {"tiled": 305, "default": 40}
    assert found["kernels"][0] == {"name": "a", "rule": "tiled", "calls": 3, "instructions": 100}


def test_a_deployment_is_right_with_the_program_that_was_counted() -> None:
    verify = {"max_rel_err": 0.01, "tolerance": 0.02, "passed": True, "message": ""}
    found = verification_of({"instructions": 50.0, "verify": verify, "backend": "tvm"})
    assert found == {"verified": True, "max_rel_err": 0.01, "tolerance": 0.02, "instructions": 50.0}
    assert right({"instructions": 50, "deployment": found}) and right({"instructions": 50})
    assert not right({"instructions": 49, "deployment": found})
    assert not right({"instructions": 50, "deployment": {**found, "verified": False}})
    assert not right({"instructions": None, "error": "none"})


def test_ratios_are_to_single_precision_where_both_are_known() -> None:
    types = {"fp32": {"instructions": 200.0}, "fp16": {"instructions": 110.0}, "int8": {"instructions": None}}
    assert {name: one["ratio"] for name, one in with_ratios(types).items()} == {
        "fp32": 1.0,
        "fp16": 0.55,
        "int8": None,
    }
    assert with_ratios({"fp16": {"instructions": 110.0}})["fp16"]["ratio"] is None


def test_a_run_that_was_ended_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All counts come first, each is made once, and only what is not verified is deployed again."""
    made: list[str] = []

    def count(path: Path, target: str, dtype: str) -> dict[str, object]:
        made.append(f"count {path.name} {dtype}")
        return figures_of([CountedKernel("a", "tiled", 1, 100)])

    def deploy(path: Path, device: str, dtype: str) -> dict[str, object]:
        made.append(f"deploy {path.name} {dtype} {device}")
        if len(made) < 5:
            return {"verified": False, "error": "the board does not answer"}
        return {"verified": True, "max_rel_err": 0.0, "tolerance": 1.0, "instructions": 100}

    monkeypatch.setattr(numeric_types, "counted", count)
    monkeypatch.setattr(numeric_types, "deployed", deploy)
    (tmp_path / "net.onnx").touch()
    words = ["net", "--types", "fp32", "fp16", "--device", "pi", "--files", str(tmp_path)]
    words += ["--resume", "--json", str(tmp_path / "found.json")]
    assert main(words) == 1
    assert made == [
        "count net.onnx fp32",
        "count net.onnx fp16",
        "deploy net.onnx fp32 pi",
        "deploy net.onnx fp16 pi",
    ]
    assert main(words) == 0
    assert made[4:] == ["deploy net.onnx fp32 pi", "deploy net.onnx fp16 pi"]
    [types] = read_result(tmp_path / "found.json").figures["models"].values()
    assert {name: entry["ratio"] for name, entry in types.items()} == {"fp32": 1.0, "fp16": 1.0}
