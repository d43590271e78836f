"""TensorRT by its program, which is a stand-in here: it takes NVIDIA's options and writes NVIDIA's files."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from device_agent.contract.measuring import Plan
from device_agent.errors import AgentError
from device_agent.execute.engines.onnx_file import FileTensor, tensors_of_file
from device_agent.execute.engines.trtexec_engine import TrtexecEngine, times_of
from device_agent.wire.frames import TensorData
from host.deploy import DeployOptions, deploy
from host.errors import EngineError
from host.transport import connect
from host.transport.device import Device
from tests.integration.engines.test_peers import FAKE
from tests.integration.small_models import doubled, floats

Start = Callable[..., TrtexecEngine]


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """This machine with the program on its path, and no package of TensorRT."""
    (tmp_path / "bin").mkdir()
    shutil.copy(FAKE / "trtexec", tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with connect("local") as device:
        yield device


@pytest.fixture
def start(tmp_path: Path):
    """Makes an engine of that model in this process, with an input."""
    made = []

    def start(name: str = "x") -> TrtexecEngine:
        engine = TrtexecEngine(str(FAKE / "trtexec"), "", str(tmp_path / "cache" / "timings"))
        made.append(engine)
        engine.load(str(doubled(tmp_path / "model.onnx", name=name)), 1)
        engine.bind([TensorData((1, 8), "float32", np.arange(8, dtype=np.float32).tobytes())])
        return engine

    yield start
    for engine in made:
        engine._folder.cleanup()


@pytest.mark.parametrize("engine", ["tensorrt", pytest.param("tensorrt-fp16", marks=pytest.mark.long)])
def test_the_program_takes_the_place_of_the_package(engine: str, board: Device, tmp_path: Path) -> None:
    assert board.describe().software["tensorrt"] == "trtexec"
    value = np.arange(8, dtype=np.float32).reshape(1, 8)
    with board.open_session(engine) as session:
        session.load(doubled(tmp_path / "model.onnx"))
        np.testing.assert_array_equal(session.run([value])[0], value * 2)
        measured = session.measure([value], min_repeats=5, min_time_s=0.0, warmup_s=0.0)
        assert measured.n == 5
        assert list(measured.times_s) == pytest.approx([(1 + run / 1000) / 1e3 for run in range(5)])
        assert "runs by itself" in str(measured.energy)
    assert (tmp_path / "cache" / "edgetlm" / "tensorrt.timings").read_text() == "times of kernels\n"


def test_what_the_program_cannot_read_is_named(board: Device, tmp_path: Path) -> None:
    with (
        board.open_session("tensorrt-int8") as session,
        pytest.raises(EngineError, match=r"trtexec cannot build .*UNSUPPORTED_NODE"),
    ):
        session.load(doubled(tmp_path / "model.onnx", "Broken"))


def test_inferences_are_counted_out_of_their_time(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    monkeypatch.setenv("FAKE_TRTEXEC_LOG", str(log))
    engine = start()
    # A millisecond each, and a thousandth of it more from one to the next.
    assert len(engine.times_s(Plan(min_time_s=0.1, max_time_s=60.0))) == 100
    assert len(engine.times_s(Plan(min_time_s=0.0, max_time_s=60.0, min_repeats=7))) == 7
    assert len(engine.times_s(Plan(min_time_s=10.0, max_time_s=60.0, max_repeats=50))) == 50
    assert len(engine.times_s(Plan(min_time_s=1.0, max_time_s=0.0105, min_repeats=20))) == 10
    runs = [json.loads(line) for line in log.read_text().splitlines()][1:]
    assert [int(one["iterations"]) for one in runs] == [10, 100, 7, 50, 10]
    assert {one["duration"] for one in runs} == {"0"}


def test_the_older_name_of_an_option(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_TRTEXEC", "8.5")
    assert len(start().times_s(Plan(min_time_s=0.0, min_repeats=2))) == 2


def test_names_of_inputs_in_options(start: Start) -> None:
    engine = start("x:0")
    engine.invoke()
    (found,) = engine.outputs()
    np.testing.assert_array_equal(np.frombuffer(found.data, "float32"), 2 * np.arange(8))
    for name in ("x,y", "x'y"):
        with pytest.raises(AgentError, match=f"rename the input {name}"):
            start(name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"name": "y", "dimensions": "-1", "values": [1, 2]}]', "a size is below zero"),
        ('[{"name": "y", "dimensions": "3", "values": [1, 2]}]', "cannot reshape"),
        ("[" * 100_000, "nothing to read in"),
        ("[{}]", "nothing to read in"),
    ],
)
def test_other_files_have_no_outputs(text: str, message: str, start: Start) -> None:
    engine = start()
    (Path(engine._folder.name) / "outputs.json").write_text(text)
    with pytest.raises(AgentError, match=message):
        engine.outputs()


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "[1]", '[{"computeMs" : -1}]', '[{"latencyMs" : 1}]', '[{"computeMs" : nan}]']
)
def test_other_files_have_no_times(text: str, tmp_path: Path) -> None:
    (tmp_path / "times.json").write_text(text)
    with pytest.raises(AgentError, match="nothing to read in"):
        times_of(str(tmp_path / "times.json"))


def test_names_and_types_of_a_file(tmp_path: Path) -> None:
    path = doubled(tmp_path / "model.onnx")
    model = onnx.load(path)
    # As in files of old versions, whose weights are inputs too.
    model.graph.input.append(floats("two", 1))
    model.graph.input.append(helper.make_tensor_value_info("places", onnx.TensorProto.INT64, (1, "n")))
    onnx.save(model, path)
    inputs = [FileTensor("x", "float32"), FileTensor("places", "int64")]
    assert tensors_of_file(str(path)) == (inputs, [FileTensor("y", "float32")])
    content = path.read_bytes()
    for cut in range(1, len(content), 7):
        path.write_bytes(content[:cut])
        try:
            found = tensors_of_file(str(path))
        except AgentError:
            continue
        assert {one.name for part in found for one in part} <= {"x", "places", "y", "two"}


@pytest.mark.parametrize("engine", ["onnxruntime-cuda", "onnxruntime-tensorrt"])
def test_onnxruntime_without_a_gpu_says_what_it_has(engine: str, board: Device) -> None:
    with pytest.raises(EngineError, match=r"has no .*ExecutionProvider here \(it has .*CPUExecutionProvider"):
        board.open_session(engine)


def test_what_the_program_runs_is_not_installed(board: Device, tmp_path: Path) -> None:
    """An application cannot use a program that loads its engine for every start."""
    options = DeployOptions(
        model=doubled(tmp_path / "model.onnx"),
        threads=1,
        rounds=6,
        bundle=tmp_path / "out",
        backend="tensorrt",
    )
    with pytest.raises(EngineError, match="can be measured here, but not installed"):
        deploy(options)
