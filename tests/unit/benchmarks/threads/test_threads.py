"""What `benchmarks.threads` makes of the times of parallel loops, and that it sees the loops of a model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks.threads.__main__ import figures_of, measured, running


def answer(
    run_s: float, loops: list[tuple[float, float, float]], between_s: float = 0.0
) -> dict[str, object]:
    """Of a worker: of each loop seconds of the call, of the longest part and of the mean part."""
    calls, longest, parts = ([*column] for column in zip(*loops, strict=True)) if loops else ([], [], [])
    return {
        "run_s": [run_s] * 3,
        "loop_s": calls,
        "longest_s": longest,
        "part_s": parts,
        "between_s": between_s,
    }


def test_a_run_is_the_sum_of_what_its_loops_take_and_lose() -> None:
    one = [answer(20e-6, [])] * 3
    alone = [answer(22e-6, [(12e-6, 12e-6, 12e-6), (6e-6, 6e-6, 6e-6)])] * 3
    shared = [answer(12.5e-6, [(8e-6, 7.5e-6, 7e-6), (4e-6, 3e-6, 3e-6)], 0.5e-6)] * 3
    taken = {"one": one, "alone": alone, "shared": shared}
    found = figures_of(taken, [("dense", 1), ("view", 0), ("norm", 1)], threads=2)
    assert found["speed"]["value"] == pytest.approx(1.6)
    assert found["waiting_us"] == pytest.approx(1.5)
    assert found["uneven_us"] == pytest.approx(0.5)
    assert found["moved_us"] == pytest.approx(1.0)
    assert found["between_us"] == pytest.approx(0.5)
    # Together with the shares of the loops that one thread computes, that is the run.
    lost = sum(found[f"{one}_us"] for one in ("waiting", "uneven", "moved", "between"))
    assert lost + (12.0 + 6.0) / 2 == pytest.approx(found["shared_ms"] * 1e3)
    assert [kernel["name"] for kernel in found["kernels"]] == ["dense", "norm"]
    assert found["kernels"][1]["shared_us"] == pytest.approx(4.0)


@pytest.mark.parametrize(("cores", "bound"), [(2, "1"), (4, "0")])
def test_workers_are_bound_as_in_a_session(
    cores: int, bound: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interpreter = tmp_path / "interpreter"
    interpreter.write_text('#!/bin/sh\necho "[[\\"$TVM_NUM_THREADS $TVM_BIND_THREADS\\", 1]]"\nexec cat\n')
    interpreter.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(interpreter))
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    with running(tmp_path, 2) as worker:
        assert worker.kernels == [[f"2 {bound}", 1]]


def test_loops_of_a_model_are_seen(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).standard_normal((256, 512)).astype("float32")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["product"]), helper.make_node("Relu", ["product"], ["y"])],
        "dense",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (256, 256))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (256, 512))],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, tmp_path / "dense.onnx")
    found = measured(tmp_path / "dense.onnx", threads=2, rounds=3, runs=2, folder=tmp_path)
    assert found["loops"] == len(found["kernels"]) == 1
    [kernel] = found["kernels"]
    assert "dense" in kernel["name"] or "matmul" in kernel["name"]
    # A part is within its loop, and each thread has one.
    assert 0 < kernel["part_us"] <= kernel["shared_us"]
    assert kernel["alone_us"] > 0
