"""Every engine through the same protocol: what it loads, runs, measures and refuses."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pytest

from host.errors import DeviceError, EngineError
from research.models.tflite_export import environment
from tests.integration.agent import small_models
from tests.integration.agent.small_models import EXPECTED, INPUTS

WRITERS = {
    "onnxruntime": (small_models.write_onnx, "small.onnx"),
    "openvino": (small_models.write_onnx, "small.onnx"),
    "torch": (small_models.write_pt2, "small.pt2"),
    "litert": (small_models.write_tflite, "small.tflite"),
}


@pytest.fixture(params=sorted(WRITERS))
def engine(request):
    return request.param


@pytest.fixture
def model(engine, tmp_path) -> Path:
    write, name = WRITERS[engine]
    return write(tmp_path / name)


def test_a_model_runs_and_is_measured(device, engine, model):
    with device.open_session(engine, threads=1) as session:
        signature = session.load(model)
        if engine != "torch":
            assert [tuple(entry["shape"]) for entry in signature["inputs"]] == [(2, 3), (2, 3)]
            assert signature["inputs"][0] == {"name": "x", "shape": [2, 3], "dtype": "float32"}
        outputs = {output.dtype.name: output for output in session.run(INPUTS)}
        np.testing.assert_allclose(outputs["float32"], EXPECTED)
        if engine != "litert":
            np.testing.assert_array_equal(outputs["bool"], INPUTS[0] > INPUTS[1])
        again = session.run([INPUTS[0] * 0, INPUTS[1]])[0 if engine != "torch" else -1]
        measurement = session.measure(min_repeats=3, min_time_s=0.0, warmup_s=0.0)
        assert measurement.n >= 3 and measurement.median_s > 0
        # Measuring must not change what a model computes.
        np.testing.assert_array_equal(
            session.run([INPUTS[0] * 0, INPUTS[1]])[0 if engine != "torch" else -1], again
        )


def test_a_wrong_number_of_inputs_is_named(device, engine, model):
    with device.open_session(engine) as session:
        session.load(model)
        with pytest.raises(DeviceError, match="1 inputs given, the model takes 2"):
            session.run(INPUTS[:1])
        assert session.run(INPUTS)


def test_a_file_that_is_no_model_is_named(device, engine, model):
    model.write_bytes(b"nothing of use")
    with (
        device.open_session(engine) as session,
        pytest.raises(EngineError, match=f"{engine} cannot load .*{model.name}") as caught,
    ):
        session.load(model)
    assert "\n" not in str(caught.value)


def test_a_file_that_does_not_exist_is_named(device, tmp_path):
    with device.open_session("onnxruntime") as session, pytest.raises(EngineError, match="does not exist"):
        session.load(tmp_path / "nothing.onnx")


def test_text_cannot_travel(device, tmp_path):
    from onnx import TensorProto, helper, save

    node = helper.make_node("Cast", ["x"], ["text"], to=TensorProto.STRING)
    graph = helper.make_graph(
        [node],
        "text",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2,))],
        [helper.make_tensor_value_info("text", TensorProto.STRING, (2,))],
    )
    path = tmp_path / "text.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    with device.open_session("onnxruntime") as session:
        session.load(path)
        with pytest.raises(EngineError, match="an output of type object cannot be sent"):
            session.run([np.zeros(2, "float32")])


def test_an_engine_that_is_not_installed_is_named(device, tmp_path):
    import venv

    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    python = str(tmp_path / "bare" / "bin" / "python")
    for engine, reason in (
        ("onnxruntime", "onnxruntime cannot be used on this device: No module named 'onnxruntime'"),
        ("litert", "neither ai-edge-litert nor tflite-runtime is installed"),
        ("tvm", "apache-tvm-ffi is not usable here"),
    ):
        with pytest.raises(EngineError, match=reason):
            device.open_session(engine, python=python)


def threads_of(pid):
    """Threads that stay: those that greet a client are gone in a moment."""
    counts = []
    for _ in range(30):
        counts.append(len(list(Path(f"/proc/{pid}/task").iterdir())))
        time.sleep(0.01)
    return min(counts)


def test_litert_runs_on_tflite_runtime_in_an_environment_of_its_own(device, tmp_path):
    model = small_models.write_tflite(tmp_path / "small.tflite")
    with device.open_session("litert", python=str(environment("tflite-runtime"))) as session:
        session.load(model)
        np.testing.assert_allclose(session.run(INPUTS)[0], EXPECTED)
        assert session.measure(INPUTS, min_repeats=3, min_time_s=0.0, warmup_s=0.0).n >= 3
        libraries = Path(f"/proc/{session.pid}/maps").read_text()
        assert "tflite_runtime" in libraries and "ai_edge_litert" not in libraries


def test_threads_are_pinned(device, tmp_path):
    model = small_models.write_onnx(tmp_path / "small.onnx")
    with device.open_session("onnxruntime", threads=1) as session:
        session.load(model)
        session.run(INPUTS)
        one = threads_of(session.pid)
    with device.open_session("onnxruntime", threads=4) as session:
        session.load(model)
        session.run(INPUTS)
        assert threads_of(session.pid) == one + 3
        environment = Path(f"/proc/{session.pid}/environ").read_bytes().split(b"\0")
        assert b"TVM_NUM_THREADS=4" in environment and b"OMP_NUM_THREADS=4" in environment


def test_another_interpreter_gets_nothing_of_this_one(device):
    with device.open_session("tvm", python=sys.executable) as session:
        folders = list(Path(f"/proc/{session.pid}/cwd").resolve().iterdir())
        assert [folder.name for folder in folders] == ["device_agent"]
