"""TFLite files whose tensors are integers that stand for real numbers."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from host.compare.verification import deviation
from host.errors import ModelFileError
from host.importers import load_here as load
from host.importers.tflite import real_form
from host.importers.tflite.real_form import in_real_numbers
from host.importers.tflite.whole_model import WholeModel
from host.lowering import lower
from host.model import ImportedModel
from tests.fuzz.corpus.tflite_models import Graph, objects, packed
from tests.unit.lowering.harness import board, functions, run_cases

_F, _I4, _I8, _I16, _I32, _I64 = (
    getattr(schema.TensorType, name) for name in ("FLOAT32", "INT4", "INT8", "INT16", "INT32", "INT64")
)
_DRAW = np.random.default_rng(0)


def _quantised(graph: Graph, tensor: int, scale: Any, zero: Any = 0, axis: int = 0) -> int:
    parameters = schema.QuantizationParametersT()
    parameters.scale = np.atleast_1d(np.asarray(scale, np.float32))
    parameters.zeroPoint = np.broadcast_to(np.asarray(zero, np.int64), parameters.scale.shape)
    parameters.quantizedDimension = axis
    graph.graph.tensors[tensor].quantization = parameters
    return tensor


def _verified(graph: Graph, inputs: list[int], outputs: list[int], path: Path) -> ImportedModel:
    """The model, whose compiled outputs are those of LiteRT."""
    path.write_bytes(packed(graph.done(inputs, outputs)))
    model = load(path, golden_cases=2)
    assert model.module is not None, model.reason
    lowered = lower(model, board())
    made = run_cases(lowered.module, [[*case.inputs, *lowered.parameters] for case in model.golden])
    for place, (case, results) in enumerate(zip(model.golden, made, strict=True)):
        for index, (value, wanted) in enumerate(zip(results, case.outputs, strict=True)):
            assert deviation(place, index, value, wanted, case.spread).excess <= 1
    return model


def _weights(*shape: int) -> np.ndarray:
    return _DRAW.integers(-127, 128, shape).astype(np.int8)


def _dense(kind: int, sums: int, dtype: Any, zero: int) -> tuple[Graph, list[int], list[int]]:
    """Floats to integers, a dense layer with a scale for each channel, a view, a table, and back."""
    made = Graph()
    x, y = made.tensor("x", (3, 8)), made.tensor("y", (1, 9))
    step = 0.05 if kind == _I8 else 2e-4
    q = _quantised(made, made.tensor("q", (3, 8), kind), step, zero)
    w = _quantised(made, made.tensor("w", (5, 8), _I8, _weights(5, 8)), np.linspace(0.01, 0.02, 5), axis=0)
    bias = _DRAW.integers(-100, 100, 5).astype(dtype)
    b = _quantised(made, made.tensor("b", (5,), sums, bias), step * np.linspace(0.01, 0.02, 5))
    d = _quantised(made, made.tensor("d", (3, 5), kind), 4 * step, -zero)
    begin, size = (
        made.tensor(name, (2,), _I32, np.array(at, np.int32)) for name, at in (("b0", (0, 1)), ("s", (3, 3)))
    )
    cut = _quantised(made, made.tensor("cut", (3, 3), kind), 4 * step, -zero)
    order = made.tensor("order", (2,), _I32, np.array([1, 0], np.int32))
    turned = _quantised(made, made.tensor("t", (3, 3), kind), 4 * step, -zero)
    to = made.tensor("to", (2,), _I32, np.array([1, 9], np.int32))
    flat = _quantised(made, made.tensor("flat", (1, 9), kind), 4 * step, -zero)
    made.operator("QUANTIZE", [x], [q], "QuantizeOptions")
    made.operator("FULLY_CONNECTED", [q, w, b], [d], "FullyConnectedOptions", fusedActivationFunction=1)
    made.operator("SLICE", [d, begin, size], [cut], "SliceOptions")
    made.operator("TRANSPOSE", [cut, order], [turned], "TransposeOptions")
    made.operator("RESHAPE", [turned, to], [flat], "ReshapeOptions", newShape=[1, 9])
    made.operator("DEQUANTIZE", [flat], [y], "DequantizeOptions")
    return made, [x], [y]


@pytest.mark.parametrize(
    "kind, sums, dtype, zero",
    [pytest.param(_I8, _I32, np.int32, -3, id="int8"), pytest.param(_I16, _I64, np.int64, 0, id="int16")],
)
def test_layers_of_integers(kind: int, sums: int, dtype: Any, zero: int, tmp_path: Path) -> None:
    _verified(*_dense(kind, sums, dtype, zero), tmp_path / "m.tflite")


def test_products_of_bytes_stay_products_of_bytes(tmp_path: Path) -> None:
    model = _verified(*_dense(_I8, _I32, np.int32, -3), tmp_path / "m.tflite")
    lowered = lower(model, board())
    kinds = [(str(one.dtype), one.shape) for one in lowered.parameters]
    assert any(kind == "int8" and np.prod(shape) >= 40 for kind, shape in kinds), kinds


def test_numbers_of_operators_that_stand_in_the_wide_field_alone(tmp_path: Path) -> None:
    """As quantisers write them: read by the narrow field they are all ADD."""
    made, inputs, outputs = _dense(_I8, _I32, np.int32, -3)
    for code in made.model.operatorCodes:
        code.deprecatedBuiltinCode = 0
    _verified(made, inputs, outputs, tmp_path / "m.tflite")


def test_inputs_and_outputs_that_are_integers(tmp_path: Path) -> None:
    made = Graph()
    x = _quantised(made, made.tensor("x", (2, 6), _I8), 0.03, 5)
    y = _quantised(made, made.tensor("y", (2, 6), _I8), 1 / 256, -128)
    made.operator("LOGISTIC", [x], [y])
    model = _verified(made, [x], [y], tmp_path / "m.tflite")
    assert [entry.dtype for entry in (*model.signature.inputs, *model.signature.outputs)] == ["int8"] * 2


@pytest.mark.parametrize("kind", [_I8, _I4])
def test_weights_of_integers_beside_floats(kind: int, tmp_path: Path) -> None:
    """Layers whose activations LiteRT quantises while it runs."""
    made = Graph()
    values = _DRAW.integers(-7, 8, (6, 32)).astype(np.int8)
    nibbles = values.reshape(-1, 2) & 15
    data = values if kind == _I8 else (nibbles[:, 0] | nibbles[:, 1] << 4).astype(np.uint8)
    x, y = made.tensor("x", (4, 32)), made.tensor("y", (4, 6))
    w = _quantised(made, made.tensor("w", (6, 32), kind, data), np.linspace(0.1, 0.2, 6))
    made.operator("FULLY_CONNECTED", [x, w], [y], "FullyConnectedOptions")
    _verified(made, [x], [y], tmp_path / "m.tflite")


def test_results_have_the_width_of_the_file(tmp_path: Path) -> None:
    """TVM's positions have 64 bits."""
    made = Graph()
    x, y = made.tensor("x", (3, 7)), made.tensor("y", (3,), _I32)
    axis = made.tensor("axis", (1,), _I32, np.array([1], np.int32))
    made.operator("ARG_MAX", [x, axis], [y], "ArgMaxOptions", outputType=_I32)
    model = _verified(made, [x], [y], tmp_path / "m.tflite")
    assert model.signature.outputs[0].dtype == "int32"


@pytest.mark.parametrize(
    "scales, zero, axis, why",
    [
        (5, 0, 0, "5 scales along axis 0"),
        (6, 0, -1, "6 scales along axis -1"),
        (6, 300, 0, "zero points [300, 300, 300, 300]"),
    ],
)
def test_integers_that_stand_for_nothing_are_refused(
    scales: int, zero: int, axis: int, why: str, tmp_path: Path
) -> None:
    made = Graph()
    x, y = made.tensor("x", (4, 8)), made.tensor("y", (4, 6))
    w = _quantised(made, made.tensor("w", (6, 8), _I8, _weights(6, 8)), np.full(scales, 0.1), zero, axis)
    made.operator("FULLY_CONNECTED", [x, w], [y], "FullyConnectedOptions")
    path = tmp_path / "m.tflite"
    path.write_bytes(packed(made.done([x], [y])))
    model = load(path, golden_cases=1, reference=lambda *_: [[np.zeros((4, 6), np.float32)]])
    assert model.module is None and why in str(model.reason)


def test_constants_behind_the_flat_buffer(tmp_path: Path) -> None:
    """As quantisers write large ones."""
    made = Graph()
    x, y = made.tensor("x", (4, 8)), made.tensor("y", (4, 6))
    w = _quantised(made, made.tensor("w", (6, 8), _I8, _weights(6, 8)), 0.1)
    made.operator("FULLY_CONNECTED", [x, w], [y], "FullyConnectedOptions")
    inside = packed(made.done([x], [y]))
    buffer = made.model.buffers[made.graph.tensors[w].buffer]
    data, buffer.data = bytes(buffer.data), None
    buffer.offset, buffer.size = len(inside) + 64, len(data)
    outside = packed(made.model)
    assert len(outside) <= buffer.offset
    whole = outside.ljust(buffer.offset, b"\0") + data
    read = WholeModel.of(whole)
    assert bytes(read.Buffers(made.graph.tensors[w].buffer).DataAsNumpy()) == data
    outputs = [[np.zeros((4, 6), np.float32)]]
    path = tmp_path / "m.tflite"
    path.write_bytes(whole)
    assert load(path, golden_cases=1, reference=lambda *_: outputs).module is not None
    path.write_bytes(whole[:-1])
    with pytest.raises(ModelFileError, match="truncated"):
        load(path, golden_cases=1, reference=lambda *_: outputs)


def test_constants_of_one_name_are_two(tmp_path: Path) -> None:
    made = Graph()
    x, y, z = (made.tensor(name, (4, 8)) for name in "xyz")
    first, second = (
        _quantised(made, made.tensor("w", (8, 8), _I8, _weights(8, 8)), scale) for scale in (0.01, 0.03)
    )
    made.operator("FULLY_CONNECTED", [x, first], [y], "FullyConnectedOptions")
    made.operator("FULLY_CONNECTED", [y, second], [z], "FullyConnectedOptions")
    _verified(made, [x], [z], tmp_path / "m.tflite")


def test_one_part_of_a_tensor_that_is_an_output_twice(tmp_path: Path) -> None:
    made = Graph()
    axis, sizes = (
        made.tensor(f"n{i}", (1,) * i, _I32, np.full((1,) * i, 5 * i + 1, np.int32)) for i in (0, 1)
    )
    x, y, z = (_quantised(made, made.tensor(name, (2, 6), _I8), 0.05, 3) for name in "xyz")
    made.operator("SPLIT", [axis, x], [y], "SplitOptions", numSplits=1)
    made.operator("SPLIT_V", [y, sizes, axis], [z], "SplitVOptions", numSplits=1)
    _verified(made, [x], [z, z], tmp_path / "m.tflite")


def test_what_rounding_of_activations_moves_is_allowed(tmp_path: Path) -> None:
    """LiteRT convolves in bytes that it finds while it runs, in the same way with XNNPACK and without."""
    made = Graph()
    places = [made.tensor(f"y{layer}", (1, 12, 12, 16)) for layer in range(4)]
    steps = dict.fromkeys(
        ("strideW", "strideH", "dilationWFactor", "dilationHFactor", "fusedActivationFunction"), 1
    )
    for x, y in pairwise(places):
        w = made.tensor(f"w{y}", (16, 3, 3, 16), _I8, _weights(16, 3, 3, 16))
        _quantised(made, w, np.linspace(0.0008, 0.0019, 16))
        b = made.tensor(f"b{y}", (16,), _F, _DRAW.normal(size=16).astype(np.float32))
        made.operator("CONV_2D", [x, w, b], [y], "Conv2DOptions", padding=0, **steps)
    model = _verified(made, places[:1], places[-1:], tmp_path / "m.tflite")
    assert all(2e-3 < case.spread < 0.05 for case in model.golden)


def _average(zero: int) -> tuple[Graph, list[int], list[int]]:
    made = Graph()
    x, y = (
        _quantised(made, made.tensor(name, shape, _I8), 0.05, zero)
        for name, shape in (("x", (1, 12, 12, 8)), ("y", (1, 6, 6, 8)))
    )
    sizes = dict.fromkeys(("strideW", "strideH", "filterWidth", "filterHeight"), 2)
    made.operator("AVERAGE_POOL_2D", [x], [y], "Pool2DOptions", padding=1, **sizes)
    return made, [x], [y]


@pytest.mark.parametrize("zero", [-128, -3, 40])
def test_averages_of_bytes_round_halves_as_the_formats_kernels_do(zero: int, tmp_path: Path) -> None:
    """Away from the integer zero; a quarter of these averages are halves, and no other byte is allowed."""
    model = _verified(*_average(zero), tmp_path / "m.tflite")
    for case in model.golden:
        assert case.spread == 0
        (whole,) = case.outputs
        sums = case.inputs[0].astype(np.int32).reshape(1, 6, 2, 6, 2, 8).sum((2, 4))
        assert ((sums % 4 == 2).mean() > 0.2) and (whole == np.trunc((sums + 2 * np.sign(sums)) / 4)).all()
        for wrong in (np.rint(sums / 4), sums // 4, np.trunc(sums / 4), np.floor(sums / 4 + 0.5)):
            assert deviation(0, 0, wrong.astype(np.int8), whole, case.spread).excess > 1


@pytest.mark.parametrize("name", ["LOGISTIC", "TANH", "SOFTMAX"])
def test_tables_of_16_bits_are_judged_beside_real_numbers(name: str, tmp_path: Path) -> None:
    """LiteRT has a table of its own for these, in both of its ways; twice as far is wrong."""
    made = Graph()
    x, z = made.tensor("x", (4, 64)), _quantised(made, made.tensor("z", (4, 64), _I16), 2e-4)
    y = _quantised(made, made.tensor("y", (4, 64), _I16), 1 / 32768)
    made.operator("QUANTIZE", [x], [z], "QuantizeOptions")
    made.operator(name, [z], [y], *(["SoftmaxOptions"] if name == "SOFTMAX" else []))
    if name == "SOFTMAX":
        made.graph.operators[-1].builtinOptions.beta = 1.0
    model = _verified(made, [x], [y], tmp_path / "m.tflite")
    for case in model.golden:
        assert case.spread < 2e-3
        (whole,) = case.outputs
        wrong = whole + np.int16(2.5e-3 * np.abs(whole).max() + 2 * case.spread * np.abs(whole).max())
        assert deviation(0, 0, wrong, whole, case.spread).excess > 1


def test_classes_of_a_quantised_model_are_no_real_numbers(tmp_path: Path) -> None:
    made = Graph()
    x = _quantised(made, made.tensor("x", (3, 7), _I8), 0.1)
    axis = made.tensor("axis", (1,), _I32, np.array([1], np.int32))
    y, z = made.tensor("y", (3,), _I32), _quantised(made, made.tensor("z", (3, 7), _I8), 1 / 256, -128)
    made.operator("ARG_MAX", [x, axis], [y], "ArgMaxOptions", outputType=_I32)
    made.operator("LOGISTIC", [x], [z])
    model = _verified(made, [x], [y, z], tmp_path / "m.tflite")
    assert all(case.shares == (0.0, None) for case in model.golden)


def _hybrid() -> tuple[Graph, list[int], list[int]]:
    """Two layers of floats with weights of bytes that read one tensor, and one that reads their sum."""
    made = Graph()
    shape = (4, 40, 64)
    x, a, b, c, y = (made.tensor(name, shape) for name in "xabcy")
    weights = [
        _quantised(made, made.tensor(f"w{n}", (64, 64), _I8, _weights(64, 64)), np.linspace(1, 2, 64) / 1000)
        for n in range(3)
    ]
    for source, weight, result in zip((x, x, c), weights, (a, b, y), strict=True):
        made.operator(
            "FULLY_CONNECTED", [source, weight], [result], "FullyConnectedOptions", keepNumDims=True
        )
        if result == b:
            made.operator("ADD", [a, b], [c], "AddOptions")
    return made, [x], [y]


@pytest.mark.parametrize("dot_product", ["", "u8s8", "s8s8", "s16s16"])
def test_activations_beside_weights_of_bytes_are_bytes_where_that_is_fast(
    dot_product: str, tmp_path: Path
) -> None:
    path = tmp_path / "m.tflite"
    made, inputs, outputs = _hybrid()
    path.write_bytes(packed(made.done(inputs, outputs)))
    model = load(path, golden_cases=2)
    assert model.module is not None, model.reason
    found = board()
    lowered = lower(model, replace(found, hardware=replace(found.hardware, dot_product=dot_product)))
    made_outputs = run_cases(lowered.module, [[*case.inputs, *lowered.parameters] for case in model.golden])
    for case, (value,) in zip(model.golden, made_outputs, strict=True):
        assert deviation(0, 0, value, case.outputs[0], case.spread).excess <= 1
        assert 1e-3 < case.spread < 0.05
    bytes_of_products = {str(one.dtype) for one in lowered.parameters if np.prod(one.shape) >= 1024}
    assert bytes_of_products == ({"int8"} if dot_product in ("u8s8", "s8s8") else {"float32"})
    # The two layers read the same bytes.
    assert sum("quantize" in name for name in functions(lowered)) <= 3


@pytest.mark.parametrize("images, channels, is_bytes", [(1, 16, True), (2, 16, False), (1, 4, False)])
def test_convolutions_of_dynamic_ranges(images: int, channels: int, is_bytes: bool, tmp_path: Path) -> None:
    """In bytes where they are of one image, whose range is then the row's, and of enough products."""
    made = Graph()
    x, y = made.tensor("x", (images, 24, 24, 16)), made.tensor("y", (images, 24, 24, channels))
    weight = made.tensor("w", (channels, 3, 3, 16), _I8, _weights(channels, 3, 3, 16))
    bias = made.tensor("b", (channels,), _F, _DRAW.normal(size=channels).astype(np.float32))
    _quantised(made, weight, np.linspace(0.001, 0.002, channels))
    options = {"strideW": 1, "strideH": 1, "dilationWFactor": 1, "dilationHFactor": 1}
    made.operator("CONV_2D", [x, weight, bias], [y], "Conv2DOptions", padding=0, **options)
    path = tmp_path / "m.tflite"
    path.write_bytes(packed(made.done([x], [y])))
    model = load(path, golden_cases=2)
    found = board()
    lowered = lower(model, replace(found, hardware=replace(found.hardware, dot_product="u8s8")))
    outputs = run_cases(lowered.module, [[*case.inputs, *lowered.parameters] for case in model.golden])
    for case, (value,) in zip(model.golden, outputs, strict=True):
        assert deviation(0, 0, value, case.outputs[0], case.spread).excess <= 1
    assert any("dot_conv" in name for name in functions(lowered)) == is_bytes


@pytest.mark.parametrize("kind", [_I8, _I4])
def test_weights_beside_floats_as_floats(kind: int) -> None:
    made = Graph()
    x, y = made.tensor("x", (4, 3)), made.tensor("y", (4, 2))
    z, r = (made.tensor(name, (2, 3)) for name in "zr")
    values = np.array([[1, -2, 3], [-4, 5, -6]], np.int8)
    nibbles = np.array([1 | 14 << 4, 3 | 12 << 4, 5 | 10 << 4], np.uint8)
    scale, zero = np.array([0.5, 2], np.float32), (0 if kind == _I4 else 1)
    w, v = (
        _quantised(made, made.tensor(name, (2, 3), kind, values if kind == _I8 else nibbles), scale, zero)
        for name in "wv"
    )
    made.operator("FULLY_CONNECTED", [x, w], [y], "FullyConnectedOptions")
    made.operator("DEQUANTIZE", [v], [z], "DequantizeOptions")
    made.operator("RELU", [z], [r])
    found = in_real_numbers(packed(made.done([x], [y, r])))
    assert found is not None
    model = objects(found)
    dense = model.subgraphs[0].operators[0]
    first, second = (model.subgraphs[0].tensors[place] for place in (dense.inputs[1], v))
    assert (first.type, second.type) == (_F, kind)
    wanted = (values.astype(np.float32) - zero) * scale[:, None]
    assert model.buffers[first.buffer].data.view(np.float32).tolist() == wanted.reshape(-1).tolist()


@pytest.mark.parametrize("scales", [1, 9])
def test_weights_in_real_numbers_are_bounded_before_they_are_made(
    scales: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tensors of one buffer, and more scales than elements: small files with numbers without end."""
    made = Graph()
    x, y = made.tensor("x", (4, 3)), made.tensor("y", (4, 1))
    w = _quantised(made, made.tensor("w", (1, 3), _I8, np.ones((1, 3), np.int8)), np.ones(scales))
    made.operator("FULLY_CONNECTED", [x, w], [y], "FullyConnectedOptions")
    data = packed(made.done([x], [y]))
    if scales > 1:
        with pytest.raises(ValueError, match="9 scales"):
            in_real_numbers(data)
        return
    monkeypatch.setattr(real_form, "_MOST", 3)
    assert in_real_numbers(data) is not None
    monkeypatch.setattr(real_form, "_MOST", 2)
    monkeypatch.setattr(real_form, "_real", lambda *_: pytest.fail("weights were made"))
    assert in_real_numbers(data) is None
