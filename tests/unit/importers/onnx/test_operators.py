"""Converters of single ONNX operators, beside ONNX's reference evaluator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

from host.errors import ImportFailed
from host.importers import load_here as load
from host.importers.onnx.operators import converter_for
from host.importers.onnx.operators.context import Context
from tests.unit.importers.every_type.lowered_models import lowered_as_onnxruntime
from tests.unit.importers.harness import check, graph, run_model, run_node, value
from tests.unit.lowering.harness import run

RNG = np.random.default_rng(7)


def real(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def whole(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize(
    ("operator", "data", "given", "attributes"),
    [
        ("Reshape", real(2, 3, 4), {"shape": whole(0, -1)}, {}),
        ("Expand", real(3, 1), {"shape": whole(2, 1, 4)}, {}),
        ("Tile", real(2, 3), {"repeats": whole(2, 2)}, {}),
        (
            "Slice",
            real(8, 6),
            {"starts": whole(6, 1), "ends": whole(-9, 100), "axes": whole(0, 1), "steps": whole(-2, 2)},
            {},
        ),
        ("Slice", real(8, 6), {"starts": whole(-3), "ends": whole(-1), "axes": whole(-2)}, {}),
        ("Squeeze", real(2, 1, 3, 1), {"axes": whole(1, -1)}, {}),
        ("Unsqueeze", real(2, 3), {"axes": whole(-1, 0)}, {}),
        ("Pad", real(2, 3), {"pads": whole(1, 0, 2, 3)}, {}),
        ("Pad", real(3, 4), {"pads": whole(1, 2, 2, 1)}, {"mode": "reflect"}),
        ("Pad", real(3, 4), {"pads": whole(1, 2, 2, 1)}, {"mode": "edge"}),
        ("Pad", real(3, 4), {"pads": whole(1, 2, 2, 1)}, {"mode": "wrap"}),
        ("ReduceSum", real(3, 2, 4), {"axes": whole(1)}, {"keepdims": 0}),
        ("ReduceSum", real(2, 2, 2), {"axes": whole(-1)}, {"keepdims": 0}),
        ("ReduceMean", real(2, 3, 4), {"axes": whole(0, 2)}, {}),
        ("ReduceMax", real(2, 3, 4), {"axes": whole(2)}, {}),
        ("ReduceLogSumExp", real(2, 3, 4) * 50, {"axes": whole(2)}, {}),
        ("ReduceL2", real(2, 3, 4), {"axes": whole(1)}, {}),
        ("CumSum", real(3, 4), {"axis": np.array(1)}, {"exclusive": 1, "reverse": 1}),
        ("TopK", real(3, 9), {"k": whole(4)}, {"largest": 0}),
        ("TopK", real(3, 9), {"k": whole(0)}, {}),
        ("ReverseSequence", real(4, 3, 2), {"lengths": whole(4, 1, 2)}, {}),
        ("ReverseSequence", real(2, 5), {"lengths": whole(3, 5)}, {"batch_axis": 0, "time_axis": 1}),
        ("Gather", real(5, 3), {"indices": whole(0, -1, 2)}, {}),
        ("Trilu", real(4, 5), {"k": np.array(-1)}, {"upper": 0}),
        ("Clip", real(4, 5), {"low": np.float32(-0.5) * np.ones(()), "high": np.ones((), np.float32)}, {}),
    ],
)  # fmt: skip
def test_parameters_as_constants_and_as_inputs(
    tmp_path: Path,
    operator: str,
    data: np.ndarray,
    given: dict[str, np.ndarray],
    attributes: dict,
    computed: bool,
) -> None:
    given = {
        name: np.asarray(array, np.float32 if operator == "Clip" else None) for name, array in given.items()
    }
    outputs = ["y", "z"] if operator == "TopK" else ["y"]
    names = list(given) if operator != "Pad" else ["pads"]
    node = helper.make_node(operator, ["x", *names], outputs, **attributes)
    inputs = {"x": data} | (given if computed else {})
    run_node(tmp_path / "m.onnx", node, inputs, None if computed else given)


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize(
    "coordinates", ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric"]
)
@pytest.mark.parametrize(
    ("mode", "scale"), [("nearest", 2.0), ("linear", 2.0), ("linear", 0.75), ("cubic", 1.5)]
)
def test_resize(tmp_path: Path, mode: str, scale: float, coordinates: str, computed: bool) -> None:
    scales = np.array([1, 1, scale, scale], np.float32)
    node = helper.make_node(
        "Resize",
        ["x", "", "s"],
        ["y"],
        mode=mode,
        coordinate_transformation_mode=coordinates,
        nearest_mode="floor",
    )
    x = real(1, 2, 4, 8)
    inputs, constants = ({"x": x, "s": scales}, None) if computed else ({"x": x}, {"s": scales})
    run_node(tmp_path / "m.onnx", node, inputs, constants, opset=19)


@pytest.mark.parametrize("rounding", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
@pytest.mark.parametrize(
    ("coordinates", "size", "out"),
    # No coordinate is half-way between two, where the type of the arithmetic decides.
    [("half_pixel", 7, 4), ("asymmetric", 7, 5), ("align_corners", 8, 6), ("half_pixel_symmetric", 7, 4)],
)
def test_nearest_by_a_known_scale_takes_elements_by_number(
    tmp_path: Path, coordinates: str, size: int, out: int, rounding: str
) -> None:
    attributes = {"coordinate_transformation_mode": coordinates, "nearest_mode": rounding}
    node = helper.make_node("Resize", ["x", "", "", "s"], ["y"], mode="nearest", **attributes)
    path = tmp_path / "m.onnx"
    run_node(path, node, {"x": real(1, 2, 3, size)}, {"s": whole(1, 2, 3, out)}, opset=19)
    module = load(path, golden_cases=1).module
    assert module is not None and "take" in module.script() and "call_tir" not in module.script()


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_resize_with_antialiasing(tmp_path: Path, mode: str) -> None:
    node = helper.make_node("Resize", ["x", "", "", "s"], ["y"], mode=mode, antialias=1)
    run_node(tmp_path / "m.onnx", node, {"x": real(1, 1, 9, 8)}, {"s": whole(1, 1, 4, 3)}, opset=19)


def test_layer_normalisation_with_its_statistics(tmp_path: Path) -> None:
    node = helper.make_node("LayerNormalization", ["x", "s", "b"], ["y", "mean", "inverse"], axis=1)
    run_node(tmp_path / "m.onnx", node, {"x": real(2, 3, 4)}, {"s": real(3, 4), "b": real(3, 4)})


@pytest.mark.parametrize("axis", [0, -1])
def test_rms_normalisation(tmp_path: Path, axis: int) -> None:
    shape = (3, 4) if axis == 0 else (4,)
    node = helper.make_node("RMSNormalization", ["x", "s"], ["y"], axis=axis)
    run_node(tmp_path / "m.onnx", node, {"x": real(3, 4)}, {"s": real(*shape)}, opset=23)


def test_batch_normalisation_in_training(tmp_path: Path) -> None:
    node = helper.make_node(
        "BatchNormalization", ["x", "s", "b", "m", "v"], ["y", "m2", "v2"], training_mode=1
    )
    constants = {"s": real(3), "b": real(3), "m": real(3), "v": np.abs(real(3))}
    run_node(tmp_path / "m.onnx", node, {"x": real(2, 3, 4, 5)}, constants)


def test_indices_beyond_the_table_read_nothing_foreign(tmp_path: Path) -> None:
    """The result is of no use, but it comes from the table."""
    node = helper.make_node("Gather", ["t", "i"], ["y"])
    model = graph(
        [node], {"i": whole(0)}, [value("y", real(1, 2))], {"t": np.array([[1, 2], [3, 4]], np.float32)}
    )
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    module = load(path).module
    assert module is not None
    assert run(module, [whole(10**9)])[0].tolist() == [[3, 4]]


def test_sequences_beyond_their_end_read_nothing_foreign(tmp_path: Path) -> None:
    node = helper.make_node("ReverseSequence", ["x", "lengths"], ["y"])
    inputs = {"x": real(3, 2), "lengths": whole(10**9, -(10**9))}
    model = graph([node], inputs, [value("y", inputs["x"])])
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    samples = [list(inputs.values())]
    module = load(path, samples=samples, reference=lambda engine, file, given: [[inputs["x"]]]).module
    assert module is not None
    x = inputs["x"]
    assert run(module, samples[0])[0].tolist() == np.stack([x[::-1, 0], x[:, 1]], 1).tolist()


@pytest.mark.parametrize("base", [np.float32, np.int32, np.int64])
@pytest.mark.parametrize("exponent", [np.float32, np.int64])
def test_powers_of_mixed_types(tmp_path: Path, base: type, exponent: type) -> None:
    node = helper.make_node("Pow", ["x", "e"], ["y"])
    x, e = np.array([1, 2, 3, -4]).astype(base), np.array([3, 2, 2, 3]).astype(exponent)
    # TVM's own lowering has no powers of whole numbers.
    lowered_as_onnxruntime(tmp_path / "m.onnx", [node], {"x": x, "e": e}, 1e-6)


def test_bits_read_as_another_type(tmp_path: Path) -> None:
    node = helper.make_node("BitCast", ["x"], ["y"], to=TensorProto.INT32)
    run_node(tmp_path / "m.onnx", node, {"x": real(6)}, opset=26)


@pytest.mark.parametrize(("positive", "negative"), [(1, 1), (1, 0), (0, 1), (0, 0)])
def test_infinities_of_either_sign(tmp_path: Path, positive: int, negative: int) -> None:
    x = np.array([1, np.inf, -np.inf, np.nan], np.float32)
    node = helper.make_node("IsInf", ["x"], ["y"], detect_positive=positive, detect_negative=negative)
    run_node(tmp_path / "m.onnx", node, {"x": x})


@pytest.mark.parametrize("padding", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_convolution_with_automatic_padding(tmp_path: Path, padding: str) -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], auto_pad=padding, strides=[2, 2], kernel_shape=[3, 3])
    run_node(tmp_path / "m.onnx", node, {"x": real(1, 2, 7, 8)}, {"w": real(3, 2, 3, 3)})


def test_columns_to_image(tmp_path: Path) -> None:
    node = helper.make_node("Col2Im", ["x", "i", "b"], ["y"], strides=[1, 2], pads=[1, 0, 1, 0])
    constants = {"i": whole(5, 6), "b": whole(3, 2)}
    run_node(tmp_path / "m.onnx", node, {"x": real(2, 12, 15)}, constants)


def test_determinants(tmp_path: Path) -> None:
    path, node = tmp_path / "m.onnx", helper.make_node("Det", ["x"], ["y"])
    run_node(path, node, {"x": real(2, 3, 3)})
    # Larger ones are an operation of the compiler.
    model = graph([node], {"x": real(2, 7, 7)}, [value("y", np.zeros(2, np.float32))])
    path.write_bytes(model.SerializeToString())
    check(load(path, golden_cases=2), tolerance=1e-3)


@pytest.mark.parametrize("zeros", [False, True])
def test_splits_of_unequal_size(tmp_path: Path, zeros: bool) -> None:
    sizes = whole(2, 0, 4) if zeros else whole(1, 2, 3)
    node = helper.make_node("Split", ["x", "s"], ["a", "b", "c"], axis=1)
    run_node(tmp_path / "m.onnx", node, {"x": real(2, 6)}, {"s": sizes})


def test_the_sum_of_nothing(tmp_path: Path) -> None:
    node = helper.make_node("ReduceProd", ["x"], ["y"], axes=[1])
    run_node(tmp_path / "m.onnx", node, {"x": np.zeros((2, 0, 3), np.float32)}, opset=13)


def test_an_operator_without_conversion_says_its_name() -> None:
    with pytest.raises(ImportFailed, match="Frobnicate") as caught:
        converter_for("Frobnicate")
    assert caught.value.operator == "Frobnicate"


@pytest.mark.parametrize(
    ("shapes", "attributes", "reason"),
    [
        ({"w": (1, 9, 4)}, {}, "weight"),
        ({"r": (1, 10, 3)}, {}, "recurrent"),
        ({"b": (1, 17)}, {}, "bias"),
        ({"x": (0, 2, 3)}, {}, "steps"),
        ({}, {"direction": b"sideways"}, "direction"),
        ({}, {"activations": [b"Sigmoid", b"Affine"]}, "affine"),
    ],
)
def test_a_recurrent_layer_that_does_not_fit_together_is_refused(
    shapes: dict[str, tuple[int, ...]], attributes: dict[str, Any], reason: str
) -> None:
    """Also where no other runtime has looked at the file before."""
    sizes = {"x": (4, 2, 3), "w": (1, 9, 3), "r": (1, 9, 3), "b": (1, 18)} | shapes
    builder = relax.BlockBuilder()
    inputs = [relax.Var(name, relax.TensorType(shape, "float32")) for name, shape in sizes.items()]
    context = Context(builder, "GRU", 18, ("y", "h"), (None, None), {})
    with builder.function("main", inputs):
        with builder.dataflow():
            with pytest.raises(ImportFailed, match=reason):
                converter_for("GRU")(context, inputs, attributes)
            output = builder.emit_output(inputs[0])
        builder.emit_func_output(output)


@pytest.mark.parametrize("given", [False, True], ids=["constant", "given"])
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_negative_widths_cut_before_anything_is_repeated(tmp_path: Path, mode: str, given: bool) -> None:
    widths, x = whole(-1, 2, 2, -1), real(5, 4)
    nodes = [] if given else [helper.make_node("Constant", [], ["p"], value=numpy_helper.from_array(widths))]
    nodes.append(helper.make_node("Pad", ["x", "p"], ["y"], mode=mode))
    inputs = {"x": x, "p": widths} if given else {"x": x}
    lowered_as_onnxruntime(tmp_path / "model.onnx", nodes, inputs)


def test_indices_of_the_older_scatter_count_from_the_end(tmp_path: Path) -> None:
    node = helper.make_node("Scatter", ["x", "i", "u"], ["y"], axis=1)
    indices = np.array([[1, -1], [0, 3]], np.int64)
    inputs = {"x": real(2, 5), "i": indices, "u": real(2, 2)}
    lowered_as_onnxruntime(tmp_path / "model.onnx", [node], inputs, opset=10)


def test_what_is_added_with_the_factor_zero_does_not_count(tmp_path: Path) -> None:
    node = helper.make_node("Gemm", ["a", "b", "c"], ["y"], beta=0.0)
    inputs = {"a": real(3, 4), "b": real(4, 5), "c": np.full(5, np.nan, np.float32)}
    lowered_as_onnxruntime(tmp_path / "model.onnx", [node], inputs, relative=1e-5)


@pytest.mark.parametrize("axis", [-3, -2, 1])
def test_one_of_classes_along_any_axis(tmp_path: Path, axis: int) -> None:
    """With values that are given, of which TVM's converter knows nothing."""
    depth = helper.make_node("Constant", [], ["d"], value=numpy_helper.from_array(np.array(5)))
    node = helper.make_node("OneHot", ["i", "d", "v"], ["y"], axis=axis)
    inputs = {"i": np.array([[0, -1, 5], [-5, 7, 2]]), "v": np.array([-1, 2**60 + 1])}
    lowered_as_onnxruntime(tmp_path / "model.onnx", [depth, node], inputs)


@pytest.mark.parametrize(
    ("shape", "size"), [((2, 7, 4, 5), 5), ((1, 6, 9), 4), ((3, 4, 2, 3, 2), 2), ((2, 5), 9)]
)
def test_responses_beside_those_of_neighbouring_channels(
    tmp_path: Path, shape: tuple[int, ...], size: int
) -> None:
    data, before = real(*shape), (size - 1) // 2
    padded = np.pad(data**2, [(0, 0), (before, size - 1 - before), *[(0, 0)] * (len(shape) - 2)])
    sums = np.lib.stride_tricks.sliding_window_view(padded, size, 1).sum(-1)
    wanted = data / (2.0 + 0.3 / size * sums) ** 0.6
    node = helper.make_node("LRN", ["x"], ["y"], size=size, alpha=0.3, beta=0.6, bias=2.0)
    model = graph([node], {"x": data}, [value("y", wanted.astype(np.float32))])
    run_model(tmp_path / "m.onnx", model, {"x": data}, [wanted.astype(np.float32)], relative=2e-6)
