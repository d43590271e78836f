"""Engines that a model is compared with on boards: ncnn for real, TensorRT by its documented interface."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from device_agent.execute.engines import tensorrt_engine
from host import bundle
from host.deploy import DeployOptions, deploy
from host.engines.ncnn_files import ncnn_files
from host.errors import EngineError
from host.importers import load_here as load
from host.transport import connect
from host.transport.device import Device
from research.models.tflite_export import environment
from tests.emulation.cuda.emulated import emulated_driver
from tests.integration.small_models import convnet, doubled

FAKE = Path(__file__).with_name("fake")


@pytest.fixture
def device():
    """This machine."""
    with connect("local") as device:
        yield device


@pytest.fixture(scope="module")
def ncnn_python() -> Path:
    """The interpreter of the environment that has ncnn and pnnx."""
    return environment("ncnn")


def test_ncnn_computes_the_model(
    device: Device, ncnn_python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (packaged,) = ncnn_python.parents[1].glob("lib/python*/site-packages/pnnx")
    monkeypatch.setenv("PATH", f"{packaged}{os.pathsep}{os.environ['PATH']}")
    model = load(convnet(tmp_path / "model.onnx"), {}, 0)
    files = ncnn_files(model.path, model.signature, tmp_path / "peer")
    assert sorted(path.suffix for path in files.iterdir()) == [".bin", ".param"]
    with device.open_session("ncnn", threads=1, python=str(ncnn_python)) as session:
        session.load(files)
        for case in model.golden:
            (found,) = session.run(case.inputs)
            assert found.shape == case.outputs[0].shape
            # ncnn's convolutions are Winograd's and keep weights as halves unless told otherwise.
            error = np.abs(found - case.outputs[0]).max() / np.abs(case.outputs[0]).max()
            assert error < 2e-2
        assert session.measure(model.golden[0].inputs, min_repeats=3, min_time_s=0.0, warmup_s=0.0).n >= 3


def test_ncnn_without_its_files_says_so(device: Device, ncnn_python: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "a.param").write_text("")
    with (
        device.open_session("ncnn", python=str(ncnn_python)) as session,
        pytest.raises(EngineError, match=r"is no folder with one \.param and one \.bin file"),
    ):
        session.load(tmp_path / "empty")


def test_without_pnnx_the_message_says_what_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    model = load(convnet(tmp_path / "model.onnx"), {}, 0)
    with pytest.raises(EngineError, match="install pnnx, or give --peer-file ncnn=FOLDER"):
        ncnn_files(model.path, model.signature, tmp_path / "peer")


def test_engines_that_are_not_there_are_unavailable(device: Device) -> None:
    for engine in ("tensorrt", "ncnn"):
        with pytest.raises(EngineError, match=f"{engine} cannot be used on this device: No module named"):
            device.open_session(engine)


@pytest.fixture
def with_tensorrt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """This machine with the stand-in for TensorRT, on the emulated driver."""
    monkeypatch.setenv("PYTHONPATH", f"{FAKE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(emulated_driver(tmp_path).parent))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with connect("local") as device:
        yield device


def test_tensorrt_computes_on_the_gpu(with_tensorrt: Device, tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(b"a model")
    value = np.arange(8, dtype=np.float32).reshape(1, 8)
    with with_tensorrt.open_session("tensorrt") as session:
        session.load(model)
        np.testing.assert_array_equal(session.run([value])[0], value * 2)
        np.testing.assert_array_equal(session.run([value + 1])[0], value * 2 + 2)
        with pytest.raises(Exception, match=r"input x is float64\[1, 8\], tensorrt takes float32\[1, 8\]"):
            session.run([value.astype(np.float64)])


@pytest.mark.parametrize("kept", [b"damaged", b"of another GPU"])
def test_tensorrt_begins_without_times_that_it_refuses(
    kept: bytes, with_tensorrt: Device, tmp_path: Path
) -> None:
    timings = tmp_path / "cache" / "edgetlm" / "tensorrt.timings"
    timings.parent.mkdir(parents=True)
    timings.write_bytes(kept)
    model = tmp_path / "model.onnx"
    model.write_bytes(b"a model")
    with with_tensorrt.open_session("tensorrt-fp16") as session:
        session.load(model)
    assert timings.read_bytes() == b"+FP16"


def test_no_part_of_a_file_of_times_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    (folder / "timings").write_bytes(b"earlier")

    def full(source: str, target: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    tensorrt_engine._write(str(folder / "timings"), b"later", 100)
    assert [(one.name, one.read_bytes()) for one in folder.iterdir()] == [("timings", b"earlier")]


def test_tensorrt_names_what_it_cannot_read(with_tensorrt: Device, tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(b"broken model")
    with (
        with_tensorrt.open_session("tensorrt") as session,
        pytest.raises(EngineError, match=r"tensorrt cannot read .*UNSUPPORTED_NODE"),
    ):
        session.load(model)


def test_tensorrt_builds_an_engine_once(with_tensorrt: Device, tmp_path: Path) -> None:
    """An application that loads the bundle again does not wait for TensorRT to build."""
    model, cache = tmp_path / "model.onnx", tmp_path / "cache" / "edgetlm"
    model.write_bytes(b"a model")
    value = np.arange(8, dtype=np.float32).reshape(1, 8)

    def loaded() -> bytes:
        with with_tensorrt.open_session("tensorrt-fp16") as session:
            session.load(model)
            np.testing.assert_array_equal(session.run([value])[0], value * 2)
        return (cache / "tensorrt.timings").read_bytes()

    assert loaded() == b"+FP16"
    assert loaded() == b"+FP16", "a second build would add its times"
    (plan,) = (cache / "tensorrt").iterdir()
    os.utime(plan, (0, 0))
    assert loaded() == b"+FP16"
    assert plan.stat().st_mtime > 0, "an engine that is used is not the oldest"
    plan.write_bytes(b"of another GPU")
    assert loaded() == b"+FP16+FP16"
    assert plan.read_bytes().startswith(b"plan of ")


def test_tensorrt_is_installed_as_a_backend(with_tensorrt: Device, tmp_path: Path) -> None:
    """The bundle holds the ONNX file; an application runs it by the board's TensorRT."""
    model = doubled(tmp_path / "model.onnx")
    options = DeployOptions(model=model, threads=1, rounds=6, bundle=tmp_path / "out", backend="tensorrt")
    result = deploy(options)
    assert result.choice.backend == "tensorrt"
    assert result.verification.passed
    assert bundle.load(tmp_path / "out").backend == "tensorrt"
    code = (
        "import sys, numpy, sdk; value = numpy.arange(8, dtype='float32').reshape(1, 8)\n"
        "with sdk.load(sys.argv[1]) as model: assert (model.run({'x': value})['y'] == value * 2).all()"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "out")], check=True, timeout=120)
