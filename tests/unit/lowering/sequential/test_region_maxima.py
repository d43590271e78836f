"""MaxRoiPool beside ONNX Runtime: as one function that reads the channels of a pixel one after another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from tvm import relax

from host.build import default_schedule
from host.errors import LoweringError
from host.lowering import lower
from host.model import LoweredModel
from tests.unit.importers.harness import graph, load, value
from tests.unit.lowering.harness import board, functions, lowered, normal, run_lowered, run_lowered_cases

IMAGES = (2, 5, 9, 8)
REGIONS = np.array(
    [
        [1, 2, 1, 20, 25],
        [0, -9, -7, 9, 5],
        [0, 4, 4, 5, 30],
        [1, 8, 8, 8, 8],
        [0, 20, 9, 3, 2],
        [1, 90, 90, 99, 99],
        [0, 0, 0, 32, 36],
        [1, 2, 6, 10, 14],
        [0, -10, -6, -2, 2],
        [1, -900, -900, 900, 900],
    ],
    np.float32,
)


def _lowered(path: Path, regions: np.ndarray, scale: float, channels: int = IMAGES[1]) -> LoweredModel:
    images = normal(IMAGES[0], channels, *IMAGES[2:])
    node = helper.make_node("MaxRoiPool", ["x", "r"], ["y"], pooled_shape=[3, 2], spatial_scale=scale)
    out = value("y", np.empty((len(regions), channels, 3, 2), np.float32))
    onnx.save(graph([node], {"x": images, "r": regions}, [out]), path)
    return lower(load(path, golden_cases=1), board())


@pytest.mark.parametrize("scale", [0.25, 0.5, 1.0])
def test_maxima_of_regions_are_those_of_onnx_runtime(tmp_path: Path, scale: float) -> None:
    path = tmp_path / "m.onnx"
    model = _lowered(path, REGIONS, scale)
    assert "fused_region_maxima" in " ".join(functions(model))
    images = normal(*IMAGES)
    cases = [images, -np.abs(images) - 1]
    made = run_lowered_cases(model, [[case, REGIONS] for case in cases])
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for case, found in zip(cases, made, strict=True):
        np.testing.assert_array_equal(found[0], session.run(None, {"x": case, "r": REGIONS})[0])


def test_a_maximum_is_nan_where_a_pixel_is(tmp_path: Path) -> None:
    model, images = _lowered(tmp_path / "m.onnx", REGIONS, 0.25), normal(*IMAGES)
    broken, largest = images.copy(), images.copy()
    broken[:, 1, 4, 4], largest[:, 1, 4, 4] = np.nan, 100
    made = run_lowered_cases(model, [[case, REGIONS] for case in (broken, largest)])
    found, wanted = (outputs[0] for outputs in made)
    assert 0 < np.count_nonzero(wanted == 100) < wanted[:, 1].size
    np.testing.assert_array_equal(found, np.where(wanted == 100, np.nan, wanted))


def test_regions_that_are_no_numbers_read_nothing_foreign(tmp_path: Path) -> None:
    far = [np.nan, np.inf, -np.inf, 3e38, -3e38, 1e30]
    regions = np.array([far[n:] + far[:n] for n in range(6)], np.float32)[:, :5]
    model = _lowered(tmp_path / "m.onnx", regions, 0.5)
    images = normal(*IMAGES)
    found = run_lowered(model, [images, regions])[0]
    assert np.isin(found, [*images.ravel(), 0]).all()


@pytest.mark.parametrize("scale", [np.inf, np.nan])
def test_a_scale_that_is_no_number_is_refused(scale: float) -> None:
    def build(bb, x, regions):
        return relax.op.vision.roi_pool(x, regions, (3, 2), scale)

    with pytest.raises(LoweringError, match="the scale of MaxRoiPool is"):
        lowered(build, [normal(*IMAGES), REGIONS])


def test_channels_are_last_and_regions_are_shared_among_threads(tmp_path: Path) -> None:
    model = _lowered(tmp_path / "m.onnx", np.tile(REGIONS, (20, 1)), 0.25, channels=64)
    name = next(variable for variable in model.module.functions if "region_maxima" in variable.name_hint)
    function = model.module[name]
    shapes = [tuple(int(extent) for extent in parameter.shape) for parameter in function.params]
    assert (IMAGES[0], *IMAGES[2:], 64) in shapes
    assert "T.parallel" in default_schedule(function).script()
