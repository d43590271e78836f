"""Fourier transforms of ONNX, beside numpy's and ONNX's reference evaluator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from host.importers import load_here as load
from tests.unit.importers.harness import graph, run_model, run_node, value

RNG = np.random.default_rng(9)


def _pairs(values: np.ndarray) -> np.ndarray:
    """Complex values as ONNX has them, with a last dimension of two."""
    return np.stack([values.real, values.imag], -1).astype(np.float32)


@pytest.mark.parametrize("axis", [0, 1, -2, -3])
@pytest.mark.parametrize("inverse", [0, 1])
def test_a_computed_axis_is_one_of_those_that_fit_the_output(tmp_path: Path, axis: int, inverse: int) -> None:
    x = RNG.normal(size=(5, 5, 2)).astype(np.float32)
    node = helper.make_node("DFT", ["x", "", "axis"], ["y"], inverse=inverse)
    run_node(tmp_path / "m.onnx", node, {"x": x, "axis": np.array(axis)}, opset=20)


def test_a_computed_axis_of_the_half_of_a_spectrum(tmp_path: Path) -> None:
    x = RNG.normal(size=(6, 6, 1)).astype(np.float32)
    node = helper.make_node("DFT", ["x", "", "axis"], ["y"], onesided=1)
    run_node(tmp_path / "m.onnx", node, {"x": x, "axis": np.array(1)}, opset=20)


def test_no_axis_gives_the_declared_output(tmp_path: Path) -> None:
    x, axis = np.ones((6, 6, 1), np.float32), np.array(1)
    node = helper.make_node("DFT", ["x", "", "axis"], ["y"])
    path = tmp_path / "m.onnx"
    declared = np.ones((5, 5, 2), np.float32)
    path.write_bytes(
        graph([node], {"x": x, "axis": axis}, [value("y", declared)], opset=20).SerializeToString()
    )
    model = load(path, samples=[[x, axis]], reference=lambda engine, file, given: [[declared]])
    assert model.module is None
    assert "no axis gives the declared shape" in model.reason


@pytest.mark.parametrize("length", [None, 4, 7, 8, 11])
def test_real_values_come_back_from_the_half_of_their_spectrum(tmp_path: Path, length: int | None) -> None:
    spectrum = RNG.normal(size=(2, 5, 3)) + 1j * RNG.normal(size=(2, 5, 3))
    wanted = np.fft.irfft(spectrum, length, axis=1)[..., None].astype(np.float32)
    names = ["x"] if length is None else ["x", "length"]
    node = helper.make_node("DFT", names, ["y"], axis=1, inverse=1, onesided=1)
    constants = None if length is None else {"length": np.array(length)}
    inputs = {"x": _pairs(spectrum)}
    model = graph([node], inputs, [value("y", wanted)], constants, opset=17)
    run_model(tmp_path / "m.onnx", model, inputs, [wanted], relative=1e-4, absolute=1e-5)


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("length", [8, 9])
@pytest.mark.parametrize("size", [28, 30])
@pytest.mark.parametrize("computed", [("step",), ("length",), ("step", "length")])
def test_frames_of_a_computed_step_and_length(
    tmp_path: Path, computed: tuple[str, ...], size: int, length: int, onesided: int
) -> None:
    signal = RNG.normal(size=(2, size, 1)).astype(np.float32)
    parameters = {"step": np.array(5), "length": np.array(length)}
    frames = np.stack([signal[:, at : at + length, 0] for at in range(0, size - length + 1, 5)], 1)
    wanted = _pairs(np.fft.rfft(frames) if onesided else np.fft.fft(frames))
    node = helper.make_node("STFT", ["x", "step", "", "length"], ["y"], onesided=onesided)
    inputs = {"x": signal} | {name: parameters.pop(name) for name in computed}
    model = graph([node], inputs, [value("y", wanted)], parameters, opset=17)
    run_model(tmp_path / "m.onnx", model, inputs, [wanted], relative=1e-4, absolute=1e-5)


def test_a_window_has_the_length_of_the_frames(tmp_path: Path) -> None:
    signal = RNG.normal(size=(1, 40, 1)).astype(np.float32)
    window = np.hanning(9).astype(np.float32)
    frames = np.stack([signal[:, at : at + 9, 0] for at in range(0, 32, 3)], 1)
    wanted = _pairs(np.fft.rfft(frames * window))
    node = helper.make_node("STFT", ["x", "step", "window", "length"], ["y"])
    inputs = {"x": signal, "step": np.array(3), "window": window, "length": np.array(9)}
    model = graph([node], inputs, [value("y", wanted)], opset=17)
    run_model(tmp_path / "m.onnx", model, inputs, [wanted], relative=1e-4, absolute=1e-5)


def test_no_length_of_frames_gives_the_declared_output(tmp_path: Path) -> None:
    signal, declared = np.ones((1, 20, 1), np.float32), np.ones((1, 9, 5, 2), np.float32)
    inputs = {"x": signal, "length": np.array(8)}
    node = helper.make_node("STFT", ["x", "step", "", "length"], ["y"])
    content = graph([node], inputs, [value("y", declared)], {"step": np.array(4)}, opset=17)
    path = tmp_path / "m.onnx"
    path.write_bytes(content.SerializeToString())
    samples = [list(inputs.values())]
    model = load(path, samples=samples, reference=lambda engine, file, given: [[declared]])
    assert model.module is None
    assert "no length of frames" in model.reason
