"""RoiAlign beside ONNX Runtime: as one function that reads the channels of a pixel one after another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from host.build import default_schedule
from host.errors import LoweringError
from host.lowering import lower
from host.model import LoweredModel
from tests.scheduling.repetitions import in_turn
from tests.unit.importers.harness import load
from tests.unit.lowering.harness import board, normal, run_lowered, run_lowered_cases

BATCH, CHANNELS, ROWS, COLUMNS = 2, 5, 9, 8
REGIONS = np.array(
    [
        [1, 2, 20, 25],
        [-9, -7, 9, 5],
        [4, 4, 5, 30],
        [8, 8, 8, 8],
        [20, 9, 3, 2],
        [90, 90, 99, 99],
        [0, 0, 32, 36],
    ],
    np.float32,
)


def _lowered(path: Path, inputs: dict[str, np.ndarray], **attributes: Any) -> LoweredModel:
    node = helper.make_node("RoiAlign", list(inputs), ["y"], output_height=3, output_width=2, **attributes)
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in inputs.items()
    ]
    shape = (len(inputs["regions"]), inputs["image"].shape[1], 3, 2)
    made = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, shape)
    graph = helper.make_graph([node], "regions", given, [made])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 9
    onnx.save(model, path)
    return lower(load(path, golden_cases=1), board())


def _inputs(regions: np.ndarray = REGIONS, channels: int = CHANNELS) -> dict[str, np.ndarray]:
    numbers = np.arange(len(regions), dtype=np.int64) % BATCH
    return {"image": normal(BATCH, channels, ROWS, COLUMNS), "regions": regions, "numbers": numbers}


POOLINGS = [("avg", 0.25), ("avg", 1.0), ("max", 0.5)]


@in_turn("pooling, samples, coordinates", POOLINGS, [0, 1, 2], ["half_pixel", "output_half_pixel"], ids=str)
def test_regions_are_those_of_onnx_runtime(
    tmp_path: Path, pooling: tuple[str, float], samples: int, coordinates: str
) -> None:
    mode, scale = pooling
    path, inputs = tmp_path / "m.onnx", _inputs(REGIONS / np.float32(4 * scale))
    model = _lowered(
        path,
        inputs,
        mode=mode,
        spatial_scale=scale,
        sampling_ratio=samples,
        coordinate_transformation_mode=coordinates,
    )
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    single = {**inputs, "regions": inputs["regions"] * np.float32(0.3)}
    cases = [inputs, single, {**inputs, "image": -np.abs(inputs["image"])}]
    made = run_lowered_cases(model, [list(case.values()) for case in cases])
    for case, found in zip(cases, made, strict=True):
        np.testing.assert_allclose(found[0], session.run(None, case)[0], rtol=1e-4, atol=1e-5)


FAR = np.array(
    [
        [-500, -2, 40, 11],
        [3, -900, 9, 900],
        [-700, -800, 900, 600],
        [-1500, -1000, 900, 1300],
        [2, 3, 1500, 1400],
        [-900, -900, -500, 700],
        [7, 8, 7.000001, 8.000001],
        [5, 5, 5, 90],
        [1e5, 1, 2e5, 4],
    ],
    np.float32,
)


@pytest.mark.parametrize("coordinates", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_regions_far_larger_than_the_image_are_sampled_by_pixel(
    tmp_path: Path, mode: str, coordinates: str
) -> None:
    path, inputs = tmp_path / "m.onnx", _inputs(FAR)
    options = {"mode": mode, "coordinate_transformation_mode": coordinates}
    model = _lowered(path, inputs, sampling_ratio=0, spatial_scale=0.5, **options)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    # A mean over many places outside of the image is small: each region counts by itself.
    found = run_lowered(model, list(inputs.values()))[0]
    wanted = session.run(None, inputs)[0]
    assert np.count_nonzero(np.abs(wanted).max(axis=(1, 2, 3))) >= 6
    np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=1e-9)


@pytest.mark.parametrize("samples", [0, 2])
def test_a_maximum_is_nan_where_a_pixel_is(tmp_path: Path, samples: int) -> None:
    inputs = _inputs()
    model = _lowered(tmp_path / "m.onnx", inputs, mode="max", spatial_scale=0.25, sampling_ratio=samples)
    broken = inputs["image"].copy()
    broken[:, 1, 4, 4] = np.nan
    cases = [{**inputs, "image": image} for image in (inputs["image"], broken, np.nan_to_num(broken))]
    made = run_lowered_cases(model, [list(case.values()) for case in cases])
    whole, found, filled = (outputs[0] for outputs in made)
    # Bins of this channel that no place near the pixel belongs to are as before, and so are other channels.
    differs = np.isnan(found)
    assert 0 < np.count_nonzero(differs[:, 1]) < differs[:, 1].size
    assert not np.delete(differs, 1, axis=1).any()
    np.testing.assert_array_equal(found[~differs], whole[~differs])
    assert (differs | (filled == whole)).all()


def test_regions_that_are_no_numbers_read_nothing_foreign(tmp_path: Path) -> None:
    regions = np.array([[np.nan] * 4, [-np.inf, 0, np.inf, 5], [1e30, -1e30, 3e38, 3e38]], np.float32)
    for samples in (0, 2):
        inputs = {**_inputs(regions), "numbers": np.array([-7, 1 << 40, 1], np.int64)}
        model = _lowered(tmp_path / "m.onnx", inputs, sampling_ratio=samples, spatial_scale=0.5)
        found = run_lowered(model, list(inputs.values()))[0]
        assert np.isfinite(found).all()


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_regions_larger_than_the_image_are_sampled_as_a_whole(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "m.onnx"
    regions = np.array([[0, 0, 26, 40], [-30, -20, 4, 4], [-90, -80, 150, 170]], np.float32)
    inputs = _inputs(regions)
    model = _lowered(path, inputs, mode=mode, sampling_ratio=0)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    found = run_lowered(model, list(inputs.values()))[0]
    np.testing.assert_allclose(found, session.run(None, inputs)[0], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("scale", [np.inf, -np.inf, np.nan])
def test_a_scale_that_is_no_number_is_refused(tmp_path: Path, scale: float) -> None:
    with pytest.raises(LoweringError, match="the scale of RoiAlign"):
        _lowered(tmp_path / "m.onnx", _inputs(), sampling_ratio=2, spatial_scale=scale)


def test_channels_are_last_and_regions_are_shared_among_threads(tmp_path: Path) -> None:
    inputs = _inputs(np.tile(REGIONS, (20, 1)), channels=64)
    model = _lowered(tmp_path / "m.onnx", inputs, sampling_ratio=2)
    name = next(variable for variable in model.module.functions if "roi_align" in variable.name_hint)
    function = model.module[name]
    shapes = [tuple(int(extent) for extent in parameter.shape) for parameter in function.params]
    assert (BATCH, ROWS, COLUMNS, 64) in shapes
    assert "T.parallel" in default_schedule(function).script()
