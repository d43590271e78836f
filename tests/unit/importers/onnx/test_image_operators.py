"""Operators over images beside ONNX Runtime: pooling with places, moved windows, blocks, boxes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from host.importers import load_here as load
from tests.unit.importers.every_type.lowered_models import both
from tests.unit.importers.harness import check, graph, value

RNG = np.random.default_rng(11)


def real(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def run_onnxruntime(engine: str, path: Path, cases: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
    """In this process, for tiny models."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_inputs()]
    return [session.run(None, dict(zip(names, case, strict=True))) for case in cases]


def compare(
    path: Path,
    node: onnx.NodeProto,
    inputs: dict[str, np.ndarray],
    constants: dict[str, np.ndarray] | None = None,
    opset: int = 22,
) -> None:
    """Fail unless one node gives what ONNX Runtime gives, with the shapes declared that this makes."""
    untyped = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    model = graph([node], inputs, untyped, constants, opset)
    path.write_bytes(model.SerializeToString())
    wanted = run_onnxruntime("", path, [list(inputs.values())])[0]
    del model.graph.output[:]
    names = [name for name in node.output if name]
    model.graph.output.extend(value(name, array) for name, array in zip(names, wanted, strict=True))
    path.write_bytes(model.SerializeToString())
    check(load(path, samples=[list(inputs.values())], reference=run_onnxruntime))


@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]},
        {"kernel_shape": [2, 2], "strides": [2, 2], "storage_order": 1},
        {"kernel_shape": [3, 3], "dilations": [2, 2], "pads": [2, 2, 2, 2]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
        {"kernel_shape": [3, 3], "strides": [2, 3], "ceil_mode": 1},
    ],
)
def test_places_of_maxima(tmp_path: Path, attributes: dict) -> None:
    node = helper.make_node("MaxPool", ["x"], ["y", "places"], **attributes)
    compare(tmp_path / "m.onnx", node, {"x": real(2, 3, 7, 8)})


def test_the_first_of_equal_maxima_is_the_place(tmp_path: Path) -> None:
    node = helper.make_node("MaxPool", ["x"], ["y", "places"], kernel_shape=[2, 2])
    compare(tmp_path / "m.onnx", node, {"x": np.full((1, 2, 4, 4), -np.inf, np.float32)})
    compare(tmp_path / "n.onnx", node, {"x": np.zeros((1, 2, 4, 4), np.float32)})


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_automatic_padding_of_sizes_that_strides_do_not_divide(
    tmp_path: Path, operator: str, mode: str
) -> None:
    node = helper.make_node(operator, ["x"], ["y"], kernel_shape=[3, 2], strides=[2, 3], auto_pad=mode)
    compare(tmp_path / "m.onnx", node, {"x": real(1, 2, 7, 8)})


@pytest.mark.parametrize(
    ("channels", "attributes", "masked", "biased"),
    [
        (4, {}, False, False),
        (4, {"pads": [1, 1, 1, 1], "strides": [2, 1], "dilations": [1, 2]}, True, True),
        (4, {"group": 2, "offset_group": 2}, True, False),
        (3, {"offset_group": 3, "pads": [0, 1, 2, 1]}, False, True),
    ],
)
def test_windows_that_are_moved_point_by_point(
    tmp_path: Path, channels: int, attributes: dict, masked: bool, biased: bool
) -> None:
    groups, moved = attributes.get("group", 1), attributes.get("offset_group", 1)
    pads, strides = attributes.get("pads", [0] * 4), attributes.get("strides", [1, 1])
    dilations = attributes.get("dilations", [1, 1])
    rows, columns = (
        (size + pads[axis] + pads[axis + 2] - dilations[axis] * 2 - 1) // strides[axis] + 1
        for axis, size in enumerate((6, 7))
    )
    inputs = {
        "x": real(2, channels, 6, 7),
        "w": real(4, channels // groups, 3, 3),
        # Some points are far outside of the image.
        "offset": real(2, moved * 18, rows, columns) * 3,
    }
    names = ["x", "w", "offset"]
    names.append("b" if biased else "")
    names.append("mask" if masked else "")
    inputs |= {"b": real(4)} if biased else {}
    inputs |= {"mask": real(2, moved * 9, rows, columns)} if masked else {}
    node = helper.make_node("DeformConv", names, ["y"], kernel_shape=[3, 3], **attributes)
    compare(tmp_path / "m.onnx", node, inputs)


@pytest.mark.parametrize("block", [(1, 5), (5, 1)])
def test_blocks_whose_shape_the_model_is_given(tmp_path: Path, block: tuple[int, int]) -> None:
    node = helper.make_node("Col2Im", ["x", "image", "block"], ["y"])
    inputs = {
        "x": real(1, 5, 5),
        "image": np.array([5, 5], np.int64),
        "block": np.array(block, np.int64),
    }
    compare(tmp_path / "m.onnx", node, inputs)


def _boxes(count: int) -> np.ndarray:
    return np.sort(RNG.random((2, count, 2, 2), np.float32), axis=2).reshape(2, count, 4)


@pytest.mark.parametrize("centred", [0, 1])
@pytest.mark.parametrize(("most", "overlap", "least"), [(3, 0.4, 0.2), (100, 0.1, 0.5), (1, 0.9, 0.0)])
def test_boxes_that_no_better_one_covers(
    tmp_path: Path, centred: int, most: int, overlap: float, least: float
) -> None:
    node = helper.make_node(
        "NonMaxSuppression",
        ["boxes", "scores", "most", "overlap", "least"],
        ["kept"],
        center_point_box=centred,
    )
    scores = RNG.random((2, 3, 20), np.float32)
    # Equal scores are taken in the order of the boxes.
    scores[:, :, 10:] = scores[:, :, :10]
    inputs = {"boxes": _boxes(20), "scores": scores}
    numbers = {
        "most": np.array([most], np.int64),
        "overlap": np.array([overlap], np.float32),
        "least": np.array([least], np.float32),
    }
    compare(tmp_path / "m.onnx", node, inputs, numbers)
    compare(tmp_path / "n.onnx", node, inputs | numbers)


@pytest.mark.parametrize("mode", ["half_pixel", "output_half_pixel", ""])
@pytest.mark.parametrize("scale", [0.25, 1.0, 2.0])
def test_regions_of_an_image_of_another_scale(tmp_path: Path, scale: float, mode: str) -> None:
    chosen = {"coordinate_transformation_mode": mode} if mode else {}
    node = helper.make_node(
        "RoiAlign",
        ["image", "regions", "numbers"],
        ["y"],
        output_height=3,
        output_width=2,
        sampling_ratio=2,
        spatial_scale=scale,
        **chosen,
    )
    regions = np.array([[1, 2, 20, 25], [-3, -2, 9, 5], [4, 4, 5, 30]], np.float32) / (4 * scale)
    inputs = {"image": real(2, 3, 9, 8), "regions": regions}
    compare(tmp_path / "m.onnx", node, inputs, {"numbers": np.array([0, 1, 1])}, 16)


@pytest.mark.parametrize("operator", ["NonZero", "NonMaxSuppression"])
def test_results_whose_number_is_declared_nowhere_are_refused(tmp_path: Path, operator: str) -> None:
    inputs = {"boxes": _boxes(4), "scores": real(2, 1, 4)}
    inputs = {"boxes": inputs["boxes"]} if operator == "NonZero" else inputs
    node = helper.make_node(operator, list(inputs), ["y"])
    output = helper.make_tensor_value_info("y", TensorProto.INT64, None)
    path = tmp_path / "m.onnx"
    path.write_bytes(graph([node], inputs, [output]).SerializeToString())
    model = load(path, samples=[list(inputs.values())], reference=run_onnxruntime)
    assert model.module is None
    assert model.reason == f"operator {operator}: how many results it has depends on the values"


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_])
def test_places_of_a_declared_number_of_elements(tmp_path: Path, dtype: type) -> None:
    data = (RNG.random((3, 4, 5)) > 0.6).astype(dtype)
    compare(tmp_path / "m.onnx", helper.make_node("NonZero", ["x"], ["y"]), {"x": data})


@pytest.mark.parametrize("attributes", [{}, {"axis": 0}, {"axis": -1}])
def test_slices_where_a_condition_holds(tmp_path: Path, attributes: dict) -> None:
    length = {None: 12, 0: 3, -1: 4}[attributes.get("axis")]
    condition = np.arange(length) % 3 != 1
    node = helper.make_node("Compress", ["x", "condition"], ["y"], **attributes)
    compare(tmp_path / "m.onnx", node, {"x": real(3, 4), "condition": condition})


@pytest.mark.parametrize(("operator", "opset"), [("Resize", 10), ("Upsample", 9)])
def test_nearest_elements_before_opset_11(tmp_path: Path, operator: str, opset: int) -> None:
    """Of an axis that becomes shorter, what lies above is taken."""
    scales = np.array([1, 1, 1.7, 0.7 if operator == "Resize" else 2.3], np.float32)
    node = helper.make_node(operator, ["x", "s"], ["y"], mode="nearest")
    compare(tmp_path / "model.onnx", node, {"x": real(1, 2, 5, 7)}, {"s": scales}, opset)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_halves_are_rounded_once_where_both_axes_are_resized(tmp_path: Path, mode: str) -> None:
    scales = helper.make_node("Constant", [], ["s"], value_floats=[1.0, 1.0, 1.7, 2.3])
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], mode=mode)
    (made,), (wanted,) = both(
        tmp_path / "model.onnx", [scales, node], {"x": real(1, 2, 9, 11).astype("float16")}
    )
    assert made.dtype == wanted.dtype == np.float16
    assert np.mean(made != wanted) < 0.02


def test_halves_of_images_are_resized_by_the_operation_of_floats(tmp_path: Path) -> None:
    scales = {"s": np.array([1, 1, 2, 2], np.float32)}
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], mode="linear")
    x = real(1, 2, 5, 7).astype("float16")
    model = graph([node], {"x": x}, [value("y", x, (1, 2, 10, 14))], scales)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    assert "image.resize2d" in str(load(path, golden_cases=1).module)


def test_bytes_are_rounded_once_where_both_axes_are_resized(tmp_path: Path) -> None:
    data = RNG.integers(0, 256, (1, 2, 5, 7)).astype(np.uint8)
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], mode="linear")
    scales = np.array([1, 1, 1.7, 0.7], np.float32)
    compare(tmp_path / "model.onnx", node, {"x": data}, {"s": scales}, 20)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_signed_bytes_of_antialiased_images_are_those_of_the_standard(tmp_path: Path, mode: str) -> None:
    """ONNX Runtime (1.31.1) makes numbers of them that are up to 246 from the standard's."""
    data = np.where(np.random.default_rng(3).random((1, 2, 9, 11)) > 0.5, 127, -128).astype(np.int8)
    scales = helper.make_node("Constant", [], ["s"], value_floats=[1.0, 1.0, 0.7, 1.7])
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], mode=mode, antialias=1)
    path = tmp_path / "model.onnx"
    (made,), _ = both(path, [scales, node], {"x": data})
    (wanted,) = ReferenceEvaluator(str(path)).run(None, {"x": data})
    assert np.abs(made.astype(int) - wanted).max() <= 1
    assert np.mean(made != wanted) < 0.05


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_bytes_of_antialiased_images_are_the_nearest_that_there_are(tmp_path: Path, mode: str) -> None:
    """A cubic's numbers lie beyond 0 and 255 too. Its weights are whole numbers in ONNX Runtime."""
    data = np.where(RNG.random((1, 2, 9, 11)) > 0.5, 255, 0).astype(np.uint8)
    scales = helper.make_node("Constant", [], ["s"], value_floats=[1.0, 1.0, 0.7, 1.7])
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], mode=mode, antialias=1)
    (made,), (wanted,) = both(tmp_path / "model.onnx", [scales, node], {"x": data})
    differences = made.astype(int) - wanted
    assert np.abs(differences).max() <= 1 and np.mean(differences != 0) < 0.1
