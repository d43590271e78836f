"""Which functions of a model for a GPU are left to the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from host.compile.model_file import read_model
from host.compile.placement import _Network, placed
from host.lowering import lower
from host.model import LoweredModel
from host.options import CompileOptions
from host.progress import Silence, StageClock
from host.tensor_ir.processor import is_for_cpu
from targets import Board, board_for, declared
from targets.nvidia import ORIN_NANO
from tests.integration.small_models import convnet, floats, save


@pytest.fixture(scope="module")
def board() -> Board:
    """A processor with the GPU of an Orin Nano."""
    found = board_for(declared()["x86_64-v3"])
    assert found is not None
    return replace(found, gpu=ORIN_NANO).on_gpu()


def lowered(path: Path, board: Board) -> LoweredModel:
    return lower(read_model(CompileOptions(model=path), StageClock(Silence())), board)


def on_cpu(model: LoweredModel) -> list[str]:
    """Functions of the CPU, which tasks and module must agree on."""
    names = [task.name for task in model.tasks if is_for_cpu(task.function)]
    assert names == [task.name for task in model.tasks if is_for_cpu(model.module[task.name])]
    return names


def best_of(path: Path, width: int, kind: int = TensorProto.FLOAT) -> Path:
    """The number of the greatest of some scores of a type, which a layer computes."""
    weights = {"w": np.ones((64, width), dtype="float32")}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Cast", ["product"], ["scores"], to=kind),
        helper.make_node("ArgMax", ["scores"], ["best"], axis=1, keepdims=0),
    ]
    best = helper.make_tensor_value_info("best", TensorProto.INT64, (1,))
    return save(path, nodes, [floats("x", 1, 64)], [best], weights)


def best_of_window(path: Path, width: int) -> Path:
    """The same by a window over all scores, whose place and value no rule takes together."""
    weights = {"w": np.ones((64, width), dtype="float32")}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["scores"]),
        helper.make_node("MaxPool", ["scores"], ["largest", "best"], kernel_shape=[width]),
    ]
    best = helper.make_tensor_value_info("best", TensorProto.INT64, (1, 1, 1))
    return save(path, nodes, [floats("x", 1, 1, 64)], [best], weights)


def test_layers_stay_on_the_gpu(tmp_path: Path, board: Board) -> None:
    model = lowered(convnet(tmp_path / "model.onnx"), board)
    assert placed(model, board.hardware) is model
    assert on_cpu(model) == []


def test_a_long_search_in_one_thread_is_left_to_the_cpu_and_a_short_one_is_not(
    tmp_path: Path, board: Board
) -> None:
    found = [
        on_cpu(placed(lowered(best_of_window(tmp_path / "model.onnx", width), board), board.hardware))
        for width in (8, 1000)
    ]
    assert found == [[], ["maxpool"]]


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.DOUBLE])
def test_a_long_search_that_threads_share_stays_on_the_gpu(kind: int, tmp_path: Path, board: Board) -> None:
    model = lowered(best_of(tmp_path / "model.onnx", 1000, kind), board)
    assert on_cpu(placed(model, board.hardware)) == []


def test_a_board_without_a_gpu_has_no_choice(tmp_path: Path, board: Board) -> None:
    model = lowered(convnet(tmp_path / "model.onnx"), board)
    assert placed(model, replace(board.hardware, gpu=None)) is model


def total_s(
    sides: tuple[int, ...],
    costs: np.ndarray,
    tensors: Sequence[tuple[int, Sequence[int]]],
    copy_s: np.ndarray,
) -> float:
    """Seconds of functions on these sides, 0 for the CPU, with their copies."""
    seconds = sum(costs[place, side] for place, side in enumerate(sides))
    for (writer, readers), copied in zip(tensors, copy_s, strict=True):
        seconds += copied * any(sides[reader] != sides[writer] for reader in readers)
    return float(seconds)


def test_the_cut_is_the_cheapest_of_all() -> None:
    """Beside all assignments of six functions, with tensors that several of them read."""
    draw = np.random.default_rng(0)
    for _ in range(20):
        costs = draw.integers(1, 50, size=(6, 2)) * 1e-6
        costs[0, 1] = float("inf")
        tensors = [
            (writer, sorted(draw.choice(range(writer + 1, 6), size=min(2, 5 - writer), replace=False)))
            for writer in range(5)
        ]
        copy_s = draw.integers(1, 30, size=5) * 1e-6
        network = _Network(8)
        for place, (cpu_s, gpu_s) in enumerate(costs):
            network.add(0, 2 + place, gpu_s)
            network.add(2 + place, 1, cpu_s)
        for (writer, readers), seconds in zip(tensors, copy_s, strict=True):
            network.connect(2 + writer, [2 + reader for reader in readers], seconds)
        side = network.source_side()
        chosen = tuple(0 if 2 + place in side else 1 for place in range(6))
        seconds = {sides: total_s(sides, costs, tensors, copy_s) for sides in product((0, 1), repeat=6)}
        assert seconds[chosen] == pytest.approx(min(seconds.values()))
