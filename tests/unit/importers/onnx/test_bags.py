"""Loops over bags, as PyTorch's exporter writes EmbeddingBag, beside ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from host.importers import load_here as load
from tests.unit.importers.harness import check, graph, value

_TABLE = np.random.default_rng(0).normal(size=(20, 5)).astype(np.float32)
_NUMBERS = np.random.default_rng(1).integers(0, 20, 24)
_WEIGHTS = np.random.default_rng(2).normal(size=24).astype(np.float32)


def _body(reduction: str, opset: int, weighted: bool, condition: str) -> onnx.GraphProto:
    """One bag: a part of the numbers, the rows that they name, perhaps weighted, and their reduction."""
    nodes = []
    for side in ("first", "end"):
        nodes.append(helper.make_node("Gather", [f"{side}s", "turn"], [side], axis=0))
        nodes.append(helper.make_node("Unsqueeze", [side, "zero"], [f"{side}_row"]))
    cut = ["first_row", "end_row", "zero"]
    nodes.append(helper.make_node("Slice", ["numbers", *cut], ["own"]))
    nodes.append(helper.make_node("Gather", ["table", "own"], ["rows"], axis=0))
    if weighted:
        nodes.append(helper.make_node("Slice", ["weights", *cut], ["own_weights"]))
        nodes.append(helper.make_node("Unsqueeze", ["own_weights", "one"], ["column"]))
        nodes.append(helper.make_node("Mul", ["rows", "column"], ["weighted"]))
    rows = "weighted" if weighted else "rows"
    with_input = reduction == "ReduceSum" or opset >= 18
    inputs, axes = ([rows, "zero"], {}) if with_input else ([rows], {"axes": [0]})
    nodes.append(helper.make_node(reduction, inputs, ["bag"], keepdims=0, **axes))
    nodes.append(helper.make_node("Cast", [condition], ["more"], to=onnx.TensorProto.BOOL))
    scalars = [
        helper.make_tensor_value_info("turn", onnx.TensorProto.INT64, ()),
        helper.make_tensor_value_info("go", onnx.TensorProto.BOOL, ()),
    ]
    made = [
        helper.make_tensor_value_info("more", onnx.TensorProto.BOOL, ()),
        helper.make_tensor_value_info("bag", onnx.TensorProto.FLOAT, (5,)),
    ]
    zero = numpy_helper.from_array(np.array([0]), "zero")
    one = numpy_helper.from_array(np.array([1]), "one")
    return helper.make_graph(nodes, "body", scalars, made, [zero, one])


def _model(
    firsts: list[int],
    ends: list[int],
    reduction: str = "ReduceSum",
    opset: int = 17,
    weighted: bool = False,
    condition: str = "true",
) -> onnx.ModelProto:
    inputs = {"numbers": _NUMBERS, **({"weights": _WEIGHTS} if weighted else {})}
    constants = {
        "table": _TABLE,
        "firsts": np.array(firsts),
        "ends": np.array(ends),
        "count": np.array(len(firsts)),
        "true": np.array(True),
    }
    body = _body(reduction, opset, weighted, condition)
    loop = helper.make_node("Loop", ["count", "true"], ["bags"], body=body)
    made = [value("bags", np.zeros((len(firsts), 5), np.float32))]
    return graph([loop], inputs, made, constants, opset)


def _calls(path: Path, model: onnx.ModelProto) -> list[str]:
    """Kinds of relax operators of the imported model, which gives the golden outputs."""
    path.write_bytes(model.SerializeToString())
    samples = [[_NUMBERS, _WEIGHTS][: len(model.graph.input)]]
    found = check(load(path, samples=samples))
    return [
        binding.value.op.name.removeprefix("relax.")
        for binding in found.module["main"].body.blocks[0].bindings
        if hasattr(binding.value, "op") and hasattr(binding.value.op, "name")
    ]


@pytest.mark.parametrize(("reduction", "kind"), [("Sum", "sum"), ("Mean", "mean"), ("Max", "max")])
@pytest.mark.parametrize("opset", [17, 18])
def test_bags_of_one_length_are_a_matrix_of_numbers(
    tmp_path: Path, reduction: str, kind: str, opset: int
) -> None:
    model = _model([0, 4, 8, 12, 16, 20], [4, 8, 12, 16, 20, 24], f"Reduce{reduction}", opset)
    calls = _calls(tmp_path / "m.onnx", model)
    assert calls.count("take") == 2 and calls.count(kind) == 1, calls


def test_rows_are_weighted(tmp_path: Path) -> None:
    model = _model([0, 6, 12], [6, 12, 18], weighted=True)
    assert _calls(tmp_path / "m.onnx", model).count("take") == 3


@pytest.mark.parametrize(
    ("firsts", "ends"),
    [([0, 4, 5], [4, 5, 24]), ([0, 0, 0], [24, 24, 24]), ([4, 2], [6, 4]), ([20, 22], [30, 24])],
)
def test_other_bags_are_computed_too(tmp_path: Path, firsts: list[int], ends: list[int]) -> None:
    """Of several lengths, of the same numbers, backwards, and beyond the end."""
    _calls(tmp_path / "m.onnx", _model(firsts, ends))


def test_weighted_numbers_of_a_line_are_a_table_of_products(tmp_path: Path) -> None:
    """Rows of one number each have no axis that a column of weights could go along."""
    model = _model([0, 5, 10], [5, 10, 15], weighted=True)
    for tensor in model.graph.initializer:
        if tensor.name == "table":
            tensor.CopyFrom(numpy_helper.from_array(_TABLE[:, 0].copy(), "table"))
    _calls(tmp_path / "m.onnx", model)


def test_a_condition_that_each_turn_computes_stays_a_loop(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(_model([0, 4], [4, 8], condition="turn").SerializeToString())
    assert load(path, samples=[[_NUMBERS]], reference=_nothing).operator == "Loop"


def _nothing(engine: str, file: Path, cases: list[list[np.ndarray]]) -> list[list[np.ndarray]]:
    return [[np.zeros((2, 5), np.float32)] for _ in cases]
