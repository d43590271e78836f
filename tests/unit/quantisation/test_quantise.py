"""Quantising small models: what is kept, what it loses, and what comes out.

One test asks a worker, as deployments in tests/integration do; the others ask the same functions in this
process.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from host.errors import ModelFileError, UserError
from host.model.quantisation import worst
from host.progress import Silence, StageClock
from host.quantisation import QuantisedFile, child, parent, quantise
from tests.deployments.workers import answer_here
from tests.integration import small_models
from tests.unit.quantisation import models


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def answered_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a worker, which `test_the_errors_are_those_of_the_files` has."""
    answer_here(monkeypatch, parent)


here = pytest.mark.usefixtures("answered_here")


def quantised(
    model: Path, calibration: Path, bound: float = 0.1, architecture: str = "x86_64"
) -> QuantisedFile:
    return quantise(model, {}, calibration, bound, architecture, StageClock(Silence()))


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The mobile model prepared in this process; the names of its layers."""
    model, calibration = models.mobile(tmp_path / "mobile.onnx"), models.samples(tmp_path / "c.npz")
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.chdir(folder)
    answer = child.prepare(str(model), {}, str(calibration), "uint8")
    yield [name for name, *_ in answer["layers"]]


def test_layers_have_the_names_of_the_model_and_its_products(prepared: list[str]) -> None:
    blocks = [f"block{block}/{part}" for block in range(3) for part in ("expand", "depthwise", "project")]
    assert prepared == ["stem", *blocks, "classifier"]
    answer = child._state()["layers"]
    by_name = {one["name"]: one for one in answer}
    assert by_name["stem"]["multiply_adds"] == 16 * 16 * 16 * 27
    assert by_name["block0/depthwise"]["multiply_adds"] == 48 * 16 * 16 * 9
    assert by_name["classifier"]["multiply_adds"] == 160


def test_without_quantised_layers_the_model_is_that_in_floats(prepared: list[str]) -> None:
    [error] = child.measure([], alone=False)
    assert error["rms"] < 1e-6 and error["agreement"] == 1.0
    model = onnx.load_from_string(child._candidate(child._state(), []))
    assert not [node for node in model.graph.node if "Linear" in node.op_type]


@pytest.mark.parametrize("seed", range(6))
def test_any_choice_of_layers_is_a_model_whose_chosen_layers_read_bytes(
    prepared: list[str], seed: int
) -> None:
    draw = np.random.default_rng(seed)
    chosen = [index for index in range(len(prepared)) if draw.random() < 0.5]
    model = onnx.load_from_string(child._candidate(child._state(), chosen))
    onnx.checker.check_model(model, full_check=True)
    maker = {name: node.op_type for node in model.graph.node for name in node.output}
    for node in model.graph.node:
        if node.op_type not in ("Conv", "Gemm"):
            continue
        reads = [maker.get(name, "") == "DequantizeLinear" for name in node.input[:2]]
        if prepared.index(node.name) in chosen:
            assert reads == [True, True], node.name
        else:
            assert not reads[1], node.name
    weights = {tensor.name for tensor in model.graph.initializer}
    assert weights == weights & {name for node in model.graph.node for name in node.input}
    assert maker["scores"] != "DequantizeLinear"


def test_the_pair_stands_behind_what_bounds_a_convolution(prepared: list[str]) -> None:
    model = onnx.load_from_string(child._candidate(child._state(), list(range(len(prepared)))))
    readers = {name: node.op_type for node in model.graph.node for name in node.input}
    [expand] = [node for node in model.graph.node if node.name == "block0/expand"]
    [clip] = [node for node in model.graph.node if expand.output[0] in node.input]
    assert clip.op_type == "Clip" and readers[clip.output[0]] == "QuantizeLinear"


@here
@pytest.mark.parametrize("make", [models.mobile, models.vision])
def test_the_error_falls_as_layers_are_kept_and_is_within_the_bound(tmp_path: Path, make: object) -> None:
    model, calibration = make(tmp_path / "net.onnx"), models.samples(tmp_path / "c.npz")
    loose = quantised(model, calibration, bound=1.0)
    assert not loose.result.kept
    assert loose.result.errors == loose.result.fully
    front = loose.result.front
    assert front[-1].error < front[0].error == worst(loose.result.errors)
    bound = 0.5 * front[0].error
    strict = quantised(model, calibration, bound=bound)
    assert strict.result.kept and strict.result.rms <= bound
    [taken] = [point for point in strict.result.front if point.taken]
    assert taken.kept == len(strict.result.kept) and taken.error == strict.result.rms
    # One layer fewer would be too many: the search is exact where errors fall with each layer.
    [before] = [point for point in strict.result.front if point.kept == taken.kept - 1]
    assert before.error > bound
    losses = [layer.alone for layer in strict.result.by_loss()]
    assert losses == sorted(losses, reverse=True)
    assert set(strict.result.kept) == set(strict.result.by_loss()[: taken.kept])


def test_the_errors_are_those_of_the_files(tmp_path: Path) -> None:
    model, calibration = models.mobile(tmp_path / "net.onnx"), models.samples(tmp_path / "c.npz")
    made = quantised(model, calibration)
    images = np.load(calibration)["image"]
    sessions = [onnxruntime.InferenceSession(str(path)) for path in (model, made.path)]
    floats, bytes_ = (np.concatenate([one.run(None, {"image": x})[0] for x in images]) for one in sessions)
    [error] = made.result.errors
    assert error.rms == pytest.approx(np.linalg.norm(bytes_ - floats) / np.linalg.norm(floats), rel=0.2)
    assert error.largest == pytest.approx(np.abs(bytes_ - floats).max() / np.abs(floats).max(), rel=0.2)
    assert error.agreement == pytest.approx((floats.argmax(1) == bytes_.argmax(1)).mean(), abs=0.1)
    assert made.result.samples == made.result.compared == len(images)
    for case, image in zip(made.samples, images[[0, 4, 8]], strict=True):
        np.testing.assert_array_equal(case[0], image)
    assert made.path.name == "net.onnx" and made.path.stat().st_size < model.stat().st_size
    assert made.result.original.name == "net.onnx"


@here
def test_the_layer_that_needs_a_wide_range_is_the_one_that_is_kept(tmp_path: Path) -> None:
    model = models.mobile(tmp_path / "net.onnx", outlier=300.0)
    result = quantised(model, models.samples(tmp_path / "c.npz"), bound=0.08).result
    assert result.by_loss()[0].name == "classifier"
    assert "classifier" in [layer.name for layer in result.kept]
    assert worst(result.fully) > 0.08 >= result.rms


@here
def test_the_same_samples_make_the_same_file(tmp_path: Path) -> None:
    model, calibration = models.vision(tmp_path / "net.onnx", blocks=1), models.samples(tmp_path / "c.npz")
    first, again = (quantised(model, calibration) for _ in range(2))
    assert first.path == again.path and first.result == again.result
    other = quantised(model, calibration, architecture="aarch64")
    assert (first.result.dtype, other.result.dtype) == ("uint8", "int8")
    assert other.path != first.path


@here
def test_a_bound_that_no_layer_meets_is_an_error_with_the_next_step(tmp_path: Path) -> None:
    model, calibration = models.vision(tmp_path / "net.onnx", blocks=1), models.samples(tmp_path / "c.npz")
    with pytest.raises(
        UserError, match=r"no layer can be quantised within --quantize-error 1e-09; .* alone: allow"
    ):
        quantised(model, calibration, bound=1e-9)


@here
def test_open_dimensions_are_pinned_and_old_operators_brought_up(tmp_path: Path) -> None:
    model = small_models.convnet(tmp_path / "net.onnx", batch="n")
    old = onnx.load(model)
    old.opset_import[0].version = 11
    onnx.save(old, model)
    calibration = models.samples(tmp_path / "c.npz", image=(2, 3, 16, 16))
    made = quantise(model, {"n": (2,)}, calibration, 0.1, "x86_64", StageClock(Silence()))
    assert [layer.operator for layer in made.result.layers] == ["Conv", "Gemm"]
    assert onnx.load(made.path).opset_import[0].version >= 13


@here
def test_what_cannot_be_quantised_is_refused(tmp_path: Path) -> None:
    model, calibration = models.vision(tmp_path / "net.onnx", blocks=1), models.samples(tmp_path / "c.npz")
    made = quantised(model, calibration)
    with pytest.raises(UserError, match="is quantised already: leave --quantize out"):
        quantised(made.path, calibration)
    plain = small_models.save(
        tmp_path / "plain.onnx",
        [onnx.helper.make_node("Relu", ["x"], ["y"])],
        [small_models.floats("x", 4)],
        [small_models.floats("y", 4)],
    )
    with pytest.raises(UserError, match="no convolution and no product with constant weights"):
        quantised(plain, models.samples(tmp_path / "x.npz", x=(4,)))
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(model.read_bytes()[:2000])
    with pytest.raises(ModelFileError, match="not an ONNX model, or a truncated one"):
        quantised(broken, calibration)
    with pytest.raises(UserError, match="its arrays are other"):
        quantised(model, models.samples(tmp_path / "o.npz", other=(1, 3, 32, 32)))
