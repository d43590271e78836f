"""Recurrent layers beside ONNX Runtime, as a loop over steps and unrolled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from host.lowering import lower
from host.model import LoweredModel
from targets import board_for, declared
from tests.scheduling.repetitions import in_turn
from tests.unit.importers.harness import load
from tests.unit.lowering.harness import board, functions, normal, run_cases, run_lowered, run_lowered_cases

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
STEPS, BATCH, WIDTH, HIDDEN = 4, 2, 3, 6


def _constants(
    operator: str, count: int, given: Sequence[str], hidden: int = HIDDEN, steps: int = STEPS
) -> dict[str, np.ndarray]:
    rows = GATES[operator] * hidden
    known = {
        "w": normal(count, rows, WIDTH),
        "r": normal(count, rows, hidden) / 2,
        "b": normal(count, 2 * rows),
        "lengths": np.array([steps, min(steps, STEPS - 2)], np.int32),
        "h0": normal(count, BATCH, hidden, seed=1),
        "c0": normal(count, BATCH, hidden, seed=2),
        "p": normal(count, 3 * hidden, seed=3),
    }
    return {name: known[name] for name in ("w", "r", *given)}


def _model(
    path: Path,
    operator: str,
    given: Sequence[str] = ("b",),
    direction: str = "forward",
    computed: Sequence[str] = (),
    hidden: int = HIDDEN,
    steps: int = STEPS,
    **attributes: Any,
) -> dict[str, np.ndarray]:
    """Write a model of one layer and return its inputs; `computed` names weights that are inputs."""
    count = 2 if direction == "bidirectional" else 1
    constants = _constants(operator, count, given, hidden, steps)
    inputs = {"x": normal(steps, BATCH, WIDTH), **{name: constants.pop(name) for name in computed}}
    names = ["x", "w", "r", "b", "lengths", "h0", "c0", "p"]
    present = [name if name in given or name in "xwr" else "" for name in names]
    while not present[-1]:
        present.pop()
    outputs = ["y", "h", "c"] if operator == "LSTM" else ["y", "h"]
    node = helper.make_node(operator, present, outputs, hidden_size=hidden, direction=direction, **attributes)

    state = [_declared(name, (count, BATCH, hidden)) for name in outputs[1:]]
    graph = helper.make_graph(
        [node],
        "layer",
        [_declared(name, array.shape, array.dtype) for name, array in inputs.items()],
        [_declared("y", (steps, count, BATCH, hidden)), *state],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 9
    onnx.save(model, path)
    return inputs


def _declared(name: str, shape: Sequence[int], dtype: Any = np.float32) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)


def _check(
    path: Path, inputs: dict[str, np.ndarray], loops: bool, lanes: int = 4, others: Sequence[Any] = ()
) -> LoweredModel:
    """Assert that the lowered model gives what ONNX Runtime gives, for `others` too, and return it."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    # A range of lengths is what has no loops on a processor.
    model = lower(load(path, golden_cases=1), board(lanes), any_length=not loops)
    cases = [inputs, *others]
    made = run_lowered_cases(model, [list(case.values()) for case in cases])
    for case, found in zip(cases, made, strict=True):
        for ours, theirs in zip(found, session.run(None, case), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    return model


DIRECTIONS = ("forward", "reverse", "bidirectional")
LAYERS: list[tuple[str, dict[str, Any]]] = [
    ("RNN", {}),
    ("GRU", {}),
    ("GRU", {"linear_before_reset": 1}),
    ("LSTM", {}),
]


@in_turn("layer, direction, loops", LAYERS, DIRECTIONS, [True, False], ids=str)
def test_a_layer_gives_what_onnx_runtime_gives(
    tmp_path: Path, layer: tuple[str, dict[str, Any]], direction: str, loops: bool
) -> None:
    path, (operator, attributes) = tmp_path / "m.onnx", layer
    inputs = _model(path, operator, direction=direction, **attributes)
    names = functions(_check(path, inputs, loops))
    assert any("recurrent_loop" in name for name in names) == loops


@pytest.mark.parametrize("loops", [True, False], ids=["loop", "unrolled"])
@pytest.mark.parametrize(
    ("operator", "given", "attributes"),
    [
        ("LSTM", ("b", "h0", "c0", "p"), {}),
        ("LSTM", ("p",), {"input_forget": 1, "clip": 0.3}),
        ("GRU", ("h0",), {"linear_before_reset": 1, "clip": 0.5}),
        ("RNN", ("h0",), {"activations": ["Relu"]}),
        ("GRU", ("b",), {"activations": ["Tanh", "Sigmoid"]}),
    ],
)
def test_options_of_a_layer(
    tmp_path: Path, operator: str, given: Sequence[str], attributes: dict[str, Any], loops: bool
) -> None:
    path = tmp_path / "m.onnx"
    _check(path, _model(path, operator, given, **attributes), loops)


@in_turn("operator, direction, loops", sorted(GATES), DIRECTIONS, [True, False], ids=str)
def test_sequences_of_different_lengths(tmp_path: Path, operator: str, direction: str, loops: bool) -> None:
    path = tmp_path / "m.onnx"
    given = ("b", "lengths", "h0", *(("c0",) if operator == "LSTM" else ()))
    inputs = _model(path, operator, given, direction, computed=("lengths",))
    others = [
        {**inputs, "lengths": np.array(lengths, np.int32)} for lengths in ([STEPS, STEPS], [0, 1], [0, 0])
    ]
    names = functions(_check(path, inputs, loops, others=others))
    assert any("recurrent_loop" in name for name in names) == loops


@pytest.mark.parametrize("lengths", [[STEPS + 9, -3], [2**31 - 1, -(2**31)]])
def test_a_length_that_no_sequence_has_is_bounded(tmp_path: Path, lengths: Sequence[int]) -> None:
    path = tmp_path / "m.onnx"
    inputs = _model(path, "GRU", ("b", "lengths"), computed=("lengths",))
    model = lower(load(path, golden_cases=1), board(4))
    wrong, bounded = np.array(lengths, np.int32), np.array([STEPS, 0], np.int32)
    cases = [[*{**inputs, "lengths": array}.values(), *model.parameters] for array in (wrong, bounded)]
    found, wanted = run_cases(model.module, cases)
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("steps", [1, 40])
def test_drawn_lengths_are_at_least_half_of_the_steps(tmp_path: Path, steps: int) -> None:
    """What a few steps leave out would be verified by nothing, and timed as nothing."""
    path = tmp_path / "m.onnx"
    _model(path, "GRU", ("b", "lengths"), computed=("lengths",), steps=steps)
    for case in load(path, golden_cases=4).golden:
        lengths = case.inputs[1]
        assert ((lengths >= (steps + 1) // 2) & (lengths <= steps)).all()


def test_constant_lengths_of_whole_sequences_are_none(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    whole, ending = (
        functions(_check(path, _model(path, "GRU", ("b", "lengths"), steps=steps), loops=True))
        for steps in (STEPS - 2, STEPS)
    )
    assert not any("max" in name for name in whole)
    assert any("recurrent_loop" in name for name in ending)


def test_weights_that_are_computed_are_unrolled(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    names = functions(_check(path, _model(path, "GRU", computed=("r",)), loops=True))
    assert not any("recurrent_loop" in name for name in names)


@pytest.mark.parametrize("hidden", [1, 3, 16, 17, 40])
def test_hidden_units_fill_vectors_or_not(tmp_path: Path, hidden: int) -> None:
    path = tmp_path / "m.onnx"
    _check(path, _model(path, "LSTM", ("b", "h0"), hidden=hidden), loops=True, lanes=16)


def test_a_loop_has_one_function_however_long_the_sequence_is(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    short = _check(path, _model(path, "GRU", steps=3), loops=True)
    long = _check(path, _model(path, "GRU", steps=600), loops=True)
    assert functions(short) == functions(long)


def test_a_gpu_has_no_loops(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    _model(path, "RNN")
    jetson = board_for(declared()["jetson_orin_nano"])
    assert jetson is not None
    names = functions(lower(load(path, golden_cases=1), jetson.on_gpu()))
    assert not any("recurrent_loop" in name for name in names)


@pytest.mark.parametrize(("operator", "products"), [("LSTM", 1), ("GRU", 2), ("RNN", 1)])
def test_a_gpu_has_one_product_for_the_gates_of_a_step(tmp_path: Path, operator: str, products: int) -> None:
    """A kernel of few rows hardly takes longer for all gates; the candidate of a GRU waits for the others."""
    path = tmp_path / "model.onnx"
    inputs = _model(path, operator, ("b", "h0"), computed=("h0",), steps=3)
    jetson = board_for(declared()["jetson_orin_nano"])
    assert jetson is not None
    lowered = lower(load(path, golden_cases=1), jetson.on_gpu())
    # And one product of the inputs of all steps.
    assert sum(task.weight for task in lowered.tasks if "dense" in task.name) == 3 * products + 1
    made = run_lowered(lowered, list(inputs.values()))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for ours, theirs in zip(made, session.run(None, inputs), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
