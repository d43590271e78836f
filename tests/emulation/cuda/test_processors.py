"""Models with functions of the CPU in a bundle for a GPU, on the emulated driver."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from host.compile.bundle_builder import BundleBuilder
from host.compile.model_compiler import ModelCompiler
from host.compile.model_file import read_model
from host.compile.task_outcome import TaskOutcome
from host.options import CompileOptions
from host.progress import Silence, StageClock
from tests.emulation.cuda import emulated
from tests.emulation.cuda.test_bundles import profile
from tests.emulation.cuda.test_graphs import check, drawn, run_in_python
from tests.integration.small_models import floats, save

_GRAPHS = "CUDA graphs: 2, around 3 calls and copies of the CPU"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment of processes on the emulated machine."""
    return emulated.machine_with_gpu(tmp_path_factory.mktemp("machine"))


def detector(path: Path) -> Path:
    """Scores of boxes, the best of them, and their classes: kernels before and behind a sort."""
    draw = np.random.default_rng(0)
    weights = {
        "w": draw.normal(size=(16, 64)).astype("float32"),
        "k": np.array([5], dtype="int64"),
        "v": draw.normal(size=(5, 32)).astype("float32"),
        "u": draw.normal(size=(32, 48)).astype("float32"),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["scores"]),
        helper.make_node("Sigmoid", ["scores"], ["shares"]),
        helper.make_node("TopK", ["shares", "k"], ["best", "places"]),
        helper.make_node("MatMul", ["best", "v"], ["features"]),
        helper.make_node("Tanh", ["features"], ["bounded"]),
        helper.make_node("MatMul", ["bounded", "u"], ["classes"]),
    ]
    outputs = [floats("classes", 4, 48), helper.make_tensor_value_info("places", TensorProto.INT64, (4, 5))]
    return save(path, nodes, [floats("x", 4, 16)], outputs, weights)


def sums(path: Path) -> Path:
    """A sum along an axis of an input, times the input, through a layer."""
    draw = np.random.default_rng(0)
    weights = {"axis": np.array(1, dtype="int64"), "w": draw.normal(size=(33, 64)).astype("float32")}
    nodes = [
        helper.make_node("CumSum", ["x", "axis"], ["sums"]),
        helper.make_node("Mul", ["sums", "x"], ["products"]),
        helper.make_node("MatMul", ["products", "w"], ["y"]),
    ]
    return save(path, nodes, [floats("x", 4, 33)], [floats("y", 4, 64)], weights)


def mixed_bundle(path: Path, folder: Path, dtype: str = "fp32") -> tuple[Path, dict[str, TaskOutcome]]:
    """Compile a model for the emulated GPU; returns the bundle and its tasks by name."""
    options, clock = CompileOptions(model=path, dtype=dtype), StageClock(Silence())
    builder = BundleBuilder(ModelCompiler(options, profile(), folder, clock))
    made = builder.compile(read_model(options, clock))
    return builder.directory("tvm"), {task.name: task for task in made.tasks}


def test_a_sort_runs_on_the_cpu_between_two_graphs(
    tmp_path: Path, machine: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    emulated.take_the_place_of_nvrtc(monkeypatch)
    model = detector(tmp_path / "model.onnx")
    bundle, tasks = mixed_bundle(model, tmp_path)
    assert [name for name, task in tasks.items() if task.processor == "cpu"] == ["fused_first_in_order"]
    # The scores to the CPU, the best of them back; the places are an output that stays there.
    assert {name: task.copied_bytes for name, task in tasks.items() if task.copied_bytes} == {
        "fused_first_in_order": 4 * 64 * 4,
        "fused_packed_dense_tanh": 4 * 5 * 4,
    }
    # Both of these on both processors, the features, and what enters and leaves the model.
    memory = json.loads((bundle / "manifest.json").read_text())["memory"]
    interface = 4 * 16 * 4 + 4 * 48 * 4 + 4 * 5 * 8
    assert memory["activations_bytes"] == 2 * (4 * 64 * 4 + 4 * 5 * 4) + 4 * 32 * 4 + interface
    given = drawn(model, 4)
    found, counts, launch = run_in_python(bundle, given, tmp_path, machine)
    check(model, given, found)
    assert launch == _GRAPHS
    assert [graphs for _, graphs in counts] == [4, 6, 8, 10], "they are recorded by loading"
    assert len({launches for launches, _ in counts}) == 1, "a kernel is started outside of the graphs"


def test_the_native_executor_runs_both_processors(
    tmp_path: Path, machine: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    emulated.take_the_place_of_nvrtc(monkeypatch)
    model = detector(tmp_path / "model.onnx")
    bundle, _ = mixed_bundle(model, tmp_path)
    given = drawn(model, 4)
    with emulated.native_session(bundle, tmp_path, machine, monkeypatch) as running:
        check(model, given, [running.ask("run", one)[1] for one in given])
        assert emulated.native_launch(running) == _GRAPHS
        kernels = {entry["name"] for entry in running.ask("profile", runs=2)[0]["kernels"]}
        assert {"fused_first_in_order", "edgetlm.cross"} <= kernels
        check(model, given[:2], [running.ask("run", one)[1] for one in given[:2]])


def test_a_model_may_begin_on_the_cpu(
    tmp_path: Path, machine: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    emulated.take_the_place_of_nvrtc(monkeypatch)
    model = sums(tmp_path / "model.onnx")
    bundle, tasks = mixed_bundle(model, tmp_path)
    # The product is one of 528 bytes: less than another copy back.
    on_cpu = {name for name, task in tasks.items() if task.processor == "cpu"}
    assert on_cpu == {"fused_running", "fused_multiply"}
    given = drawn(model, 3)
    found, _, launch = run_in_python(bundle, given, tmp_path, machine)
    check(model, given, found)
    assert launch == "CUDA graphs: 1, around 4 calls and copies of the CPU"
