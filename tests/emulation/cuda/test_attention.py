"""Encoders in halves, whose attention is one kernel, on the emulated driver: graphs, functions of the CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from tests.emulation.cuda import emulated
from tests.emulation.cuda.test_graphs import run_in_python
from tests.emulation.cuda.test_processors import mixed_bundle
from tests.integration.small_models import encoder, floats

LENGTH, HIDDEN, HEADS, BEST = 24, 64, 2, 3


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment of processes on the emulated machine."""
    return emulated.machine_with_gpu(tmp_path_factory.mktemp("machine"))


def alone(path: Path) -> Path:
    """An encoder of one layer."""
    return encoder(path, HIDDEN, HEADS, LENGTH)


def with_sort(path: Path) -> Path:
    """The encoder, the greatest elements of each of its rows, and a layer on these."""
    model = onnx.load(alone(path))
    weights = {
        "count": np.array([BEST]),
        "layer": np.random.default_rng(1).normal(size=(BEST, 32)).astype("f4"),
    }
    model.graph.initializer.extend(onnx.numpy_helper.from_array(one, name) for name, one in weights.items())
    model.graph.node.extend(
        [
            helper.make_node("TopK", ["hidden", "count"], ["best", "places"]),
            helper.make_node("MatMul", ["best", "layer"], ["features"]),
            helper.make_node("Tanh", ["features"], ["bounded"]),
        ]
    )
    model.graph.output.append(floats("bounded", 1, LENGTH, 32))
    onnx.save(model, path)
    return path


def _check(model: Path, given: list[np.ndarray], found: list[np.ndarray]) -> None:
    session = onnxruntime.InferenceSession(model)
    names = [one.name for one in session.get_inputs()]
    wanted = session.run(None, dict(zip(names, given, strict=True)))
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype
        assert np.abs(one - other).max() <= 1e-2 * np.abs(other).max()


CASES = [
    pytest.param(alone, [], "CUDA graph", marks=pytest.mark.long),
    # The mean and the sort read the same tensor, which crosses once.
    pytest.param(
        with_sort,
        ["fused_mean", "fused_first_in_order"],
        "CUDA graphs: 2, around 4 calls and copies of the CPU",
    ),
]


@pytest.mark.parametrize(("make", "on_the_cpu", "launch"), CASES)
def test_attention_in_graphs_by_both_executors(
    make: Callable[[Path], Path],
    on_the_cpu: list[str],
    launch: str,
    tmp_path: Path,
    machine: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    emulated.take_the_place_of_nvrtc(monkeypatch)
    model = make(tmp_path / "model.onnx")
    bundle, tasks = mixed_bundle(model, tmp_path, "fp16")
    assert [name for name, task in tasks.items() if task.processor == "cpu"] == on_the_cpu
    assert [task.rule for task in tasks.values()].count("cuda_attention") == 1
    draw = np.random.default_rng(0)
    given = []
    for seen in (LENGTH, 17, 1):
        mask = (np.arange(LENGTH) < seen).astype("int64")[None]
        given.append([draw.integers(0, 50, (1, LENGTH)), mask])
    found, _, how = run_in_python(bundle, given, tmp_path, machine)
    assert how == launch
    with emulated.native_session(bundle, tmp_path, machine, monkeypatch) as running:
        natively = [running.ask("run", one)[1] for one in given]
        assert emulated.native_launch(running) == launch
    for inputs, one, other in zip(given, found, natively, strict=True):
        _check(model, inputs, one)
        _check(model, inputs, other)
