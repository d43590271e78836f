"""Reference outputs from original runtimes, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from onnx import helper

from device_agent.contract.tensors import numpy_type
from device_agent.execute.engines.__main__ import main
from device_agent.wire.frames import TensorData
from host.engines import (
    PairedReference,
    engine_for_format,
    engines,
    run_reference,
    text_engines,
    unavailable,
)
from host.engines import reference as reference_runs
from host.errors import EngineError
from host.importers.golden import GoldenOptions
from host.importers.onnx.importer import import_onnx
from tests.unit.importers.harness import graph, value

X = np.zeros((2, 3), np.float32)
_LONG_S = 60.0


@pytest.fixture(autouse=True)
def references() -> None:
    """Original runtimes run in processes of their own, as those of a user do."""


@pytest.fixture
def doubling(tmp_path: Path) -> Path:
    path = tmp_path / "double.onnx"
    nodes = [
        helper.make_node("Add", ["x", "x"], ["y"]),
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
    ]
    outputs = [value("y", X), value("s", np.zeros((), np.float32))]
    path.write_bytes(graph(nodes, {"x": X}, outputs).SerializeToString())
    return path


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_every_case_is_run(doubling: Path, engine: str) -> None:
    cases = [[np.full((2, 3), number, np.float32)] for number in (1, 5)]
    outputs = run_reference(engine, doubling, cases)
    assert [made[0][0, 0] for made in outputs] == [2, 10]
    assert [made[1].shape for made in outputs] == [(), ()] and float(outputs[1][1]) == 30


def test_sums_of_bytes_are_exact(tmp_path: Path) -> None:
    """ONNX Runtime's usual products saturate on x86-64 processors without VNNI."""
    x, w = np.full((4, 64), 255, np.uint8), np.full((64, 32), 127, np.int8)
    node = helper.make_node("MatMulInteger", ["x", "w"], ["y"])
    wanted = x.astype(np.int32) @ w.astype(np.int32)
    path = tmp_path / "bytes.onnx"
    path.write_bytes(graph([node], {"x": x}, [value("y", wanted)], {"w": w}).SerializeToString())
    [[made]] = run_reference("onnxruntime", path, [[x]])
    np.testing.assert_array_equal(made, wanted)


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_types_that_numpy_lacks_come_back(tmp_path: Path, name: str) -> None:
    """Also beside a type that it has, and without elements."""
    kind = numpy_type(name)
    x, y = np.array([[1.5, -2, 0.25]]).astype(kind), np.zeros((1, 0), kind)
    nodes = [
        helper.make_node("Concat", ["x", "x"], ["c"], axis=0),
        helper.make_node("Identity", ["e"], ["o"]),
        helper.make_node("Cast", ["x"], ["f"], to=1),
    ]
    outputs = [value("c", np.zeros((2, 3), kind)), value("o", y), value("f", np.zeros((1, 3), np.float32))]
    path = tmp_path / "halves.onnx"
    path.write_bytes(graph(nodes, {"x": x, "e": y}, outputs).SerializeToString())
    [[both, empty, single]] = run_reference("onnxruntime", path, [[x, y]])
    assert (both.dtype, empty.dtype, single.dtype) == (kind, kind, np.float32)
    np.testing.assert_array_equal(both, np.concatenate([x, x]))
    np.testing.assert_array_equal(single, x.astype(np.float32))
    assert empty.shape == (1, 0)


def test_a_relative_path(doubling: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(doubling.parent)
    assert run_reference("onnxruntime", Path("double.onnx"), [[X + 1]])[0][0].max() == 2


def test_no_process_is_left(doubling: Path) -> None:
    run_reference("onnxruntime", doubling, [[X]])
    with pytest.raises(EngineError, match=r"gave no outputs within 0 s"):
        run_reference("onnxruntime", doubling, [[X]], time_limit_s=0.01)
    assert not [child for child in psutil.Process().children() if "device_agent" in " ".join(child.cmdline())]


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The last arguments of the processes that were started."""
    started: list[str] = []
    run = subprocess.run

    def counted(command: list[str], **options: Any) -> Any:
        started.append(Path(command[-1]).name)
        return run(command, **options)

    monkeypatch.setattr(subprocess, "run", counted)
    return started


def test_one_process_runs_both_ways(doubling: Path, processes: list[str]) -> None:
    both, cases = PairedReference(), [[X + 1], [X + 2]]
    optimised = both.optimised("onnxruntime", doubling, cases)
    unoptimised = both.unoptimised("onnxruntime", doubling, [tuple(case) for case in cases])
    assert processes == ["unoptimised.npz"]
    for made, way in ((optimised, False), (unoptimised, True)):
        alone = run_reference("onnxruntime", doubling, cases, unoptimised=way)
        for case, other in zip(made, alone, strict=True):
            for array, same in zip(case, other, strict=True):
                np.testing.assert_array_equal(array, same)


def test_other_inputs_are_run_unoptimised_by_themselves(doubling: Path, processes: list[str]) -> None:
    both = PairedReference()
    both.optimised("onnxruntime", doubling, [[X]])
    assert both.unoptimised("onnxruntime", doubling, [[X + 1]])[0][0].max() == 2
    assert processes == ["unoptimised.npz", "unoptimised"]


def test_a_way_that_fails_says_why_only_if_it_is_asked_for(doubling: Path, processes: list[str]) -> None:
    """OpenVINO runs no graph without optimisations."""
    both, cases = PairedReference(), [[X + 1]]
    assert both.optimised("openvino", doubling, cases)[0][0].max() == 2
    assert processes == ["unoptimised.npz"]
    with pytest.raises(EngineError, match="unoptimised"):
        both.unoptimised("openvino", doubling, cases)


def _replace_python(folder: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """A program of the shell in place of the interpreter that processes are started with."""
    program = folder / "python"
    program.write_text("\n".join(("#!/bin/bash", *lines, "")))
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


def test_the_outputs_of_the_first_way_outlive_a_crash_in_the_second(
    doubling: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process crashes before the second way, and nothing is run again."""
    only_both = 'case "$*" in *also-unoptimised*) ;; *) exit 9;; esac'
    _replace_python(tmp_path, monkeypatch, only_both, f'{sys.executable} "${{@:1:$#-2}}" && kill -SEGV $$')
    both, cases = PairedReference(), [[X + 1]]
    assert both.optimised("onnxruntime", doubling, cases)[0][0].max() == 2
    with pytest.raises(EngineError, match="SIGSEGV"):
        both.unoptimised("onnxruntime", doubling, cases)


def test_a_crash_in_the_first_way_leaves_no_outputs(
    doubling: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _replace_python(tmp_path, monkeypatch, "kill -SEGV $$")
    with pytest.raises(EngineError, match="SIGSEGV"):
        PairedReference().optimised("onnxruntime", doubling, [[X + 1]])


def test_only_the_first_inputs_are_run_in_both_ways(doubling: Path, processes: list[str]) -> None:
    both, cases = PairedReference(), [[X + 1]]
    both.optimised("onnxruntime", doubling, cases)
    assert both.optimised("onnxruntime", doubling, [[X + 2]])[0][0].max() == 4
    assert both.unoptimised("onnxruntime", doubling, cases)[0][0].max() == 2
    assert processes == ["unoptimised.npz", "error.json"]


def test_samples_are_not_run_unoptimised(doubling: Path, processes: list[str]) -> None:
    samples = [[X + 1], [X + 2]]
    import_onnx(doubling, {}, GoldenOptions(cases=2, samples=samples), {})
    assert processes == ["error.json"] * 2, "once for the outputs, and once to see whether they repeat"


def test_what_the_engine_refuses_is_not_tried_again(tmp_path: Path, processes: list[str]) -> None:
    path = tmp_path / "text.onnx"
    path.write_text("no model")
    with pytest.raises(EngineError, match=r"text\.onnx: onnxruntime cannot load it"):
        PairedReference().optimised("onnxruntime", path, [[X]])
    assert processes == ["unoptimised.npz"]


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "text.onnx"
    path.write_text("no model")
    with pytest.raises(EngineError, match=r"text\.onnx: onnxruntime cannot load it") as caught:
        run_reference("onnxruntime", path, [[X]])
    assert "\n" not in str(caught.value)


def test_inputs_that_do_not_fit(doubling: Path) -> None:
    with pytest.raises(EngineError, match=r"double\.onnx"):
        run_reference("onnxruntime", doubling, [[np.zeros((7, 7), np.float32)]])


def test_an_engine_that_does_not_exist(doubling: Path) -> None:
    with pytest.raises(EngineError, match="unknown engine 'caffe'"):
        run_reference("caffe", doubling, [[X]])


def test_the_table() -> None:
    assert engine_for_format("onnx").name == "onnxruntime"
    assert engine_for_format("pt2").name == "torch"
    assert engine_for_format("tflite").name == "litert"
    assert engine_for_format("transformers").name == engine_for_format("gguf").name == "transformers"
    # It makes the golden outputs of language models and runs nowhere else.
    assert {name for name, engine in engines().items() if not engine.peer} == {"transformers"}
    with pytest.raises(EngineError, match="use onnx, pt2, tflite, transformers, gguf"):
        engine_for_format("caffe")
    # TensorRT comes with JetPack, and ncnn and the engines of texts have environments of their own.
    missing = {name for name in engines() if unavailable(name) is not None}
    assert missing == {"tensorrt", "tensorrt-fp16", "tensorrt-int8", "ncnn", *text_engines()}
    assert unavailable("ncnn") == "ncnn is not installed (no module ncnn)"


def test_a_missing_package_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert unavailable("litert") == "LiteRT is not installed (no module ai_edge_litert or tflite_runtime)"


def test_a_crash_in_the_second_way_takes_no_outputs_of_the_first_along(
    doubling: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both run in one process, which crashes before either has outputs: the first is run by itself then."""
    _replace_python(
        tmp_path,
        monkeypatch,
        'case "$*" in *also-unoptimised-at-once*) kill -SEGV $$;; esac',
        f'exec {sys.executable} "$@"',
    )
    both, cases = PairedReference(), [[X + 1]]
    assert both.optimised("onnxruntime", doubling, cases)[0][0].max() == 2
    with pytest.raises(EngineError, match="SIGSEGV"):
        both.unoptimised("onnxruntime", doubling, cases)


def test_large_models_run_in_one_way_after_the_other(doubling: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By their weights, which may lie beside the file, and by their inputs."""
    ways: list[str] = []

    def noted(path: Path, arguments: Sequence[str], time_limit_s: float) -> None:
        ways.append(arguments[-2])
        raise EngineError("nothing is run")

    def ask(value: np.ndarray) -> None:
        with pytest.raises(EngineError, match="nothing is run"):
            PairedReference().optimised("onnxruntime", doubling, [[value], [X]])

    monkeypatch.setattr(reference_runs, "_run_apart", noted)
    ask(X)
    ask(np.zeros((1024, 1025), np.float32))
    doubling.with_name(f"{doubling.name}.data").touch()
    os.truncate(f"{doubling}.data", 1 << 30)
    ask(X)
    assert ways == ["also-unoptimised-at-once", "also-unoptimised", "also-unoptimised"]


class _Meeting:
    """An engine in place of ONNX Runtime, whose models wait for each other."""

    models = threading.Barrier(2)

    def __init__(self) -> None:
        self._outputs: list[TensorData] = []

    def unoptimised(self) -> None:
        pass

    def load(self, path: str, threads: int) -> dict[str, Any]:
        return {}

    def bind(self, inputs: Sequence[TensorData]) -> None:
        self._outputs = list(inputs)

    def invoke(self) -> None:
        self.models.wait(_LONG_S)

    def outputs(self) -> list[TensorData]:
        return self._outputs


def test_both_ways_are_under_way_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("device_agent.execute.engines.create", lambda name: _Meeting())
    np.savez(tmp_path / "inputs.npz", types=np.array(["float32"]), **{"0/0": X})
    files = [str(tmp_path / name) for name in ("inputs.npz", "outputs.npz", "error.json")]
    second = tmp_path / "unoptimised.npz"
    assert main(["onnxruntime", "m", "1", "1", *files, "also-unoptimised-at-once", str(second)]) == 0
    for path in (tmp_path / "outputs.npz", second):
        with np.load(path) as archive:
            np.testing.assert_array_equal(archive["0/0"], X)
