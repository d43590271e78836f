from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import pytest
import tvm

from host.build import build_kernel_library
from host.calibration.procedure import curve_sizes, working_sets
from host.calibration.programs import FUSED_STEPS, INTEGER_STEPS, LINE_ELEMENTS, STREAMS, programs
from targets import board_for, declared

LANES, ELEMENTS = 4, 1 << 12


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> tvm.runtime.Module:
    path: Path = tmp_path_factory.mktemp("calibration") / "programs.so"
    triple = f"{platform.machine()}-linux-gnu"
    target = tvm.target.Target({"kind": "llvm", "mtriple": triple, "num-cores": 2})
    build_kernel_library(programs(ELEMENTS, LANES, (1, 3), 2), path, target)
    return tvm.runtime.load_module(str(path))


def tensor(*values: float, dtype: str = "int32") -> tvm.runtime.Tensor:
    return tvm.runtime.tensor(np.array(values, dtype))


def test_every_chain_makes_all_its_steps(module: tvm.runtime.Module) -> None:
    start = np.arange(3 * LANES, dtype="float32")
    factor, summand = np.full(LANES, 1.0, "float32"), np.full(LANES, 0.25, "float32")
    result = tvm.runtime.tensor(np.zeros(3 * LANES, "float32"))
    module["fused_3"](*map(tvm.runtime.tensor, (start, factor, summand)), result)
    np.testing.assert_array_equal(result.numpy(), start + 0.25 * FUSED_STEPS)


def test_the_integer_chain_makes_all_its_steps(module: tvm.runtime.Module) -> None:
    result = tensor(0, dtype="int64")
    module["integer_chain"](tensor(3, 5, dtype="int64"), result)
    state = 3
    for _ in range(INTEGER_STEPS):
        state = (state + 3) ^ 5
    assert result.numpy()[0] == state


def test_streams_read_everything_in_every_pass(module: tvm.runtime.Module) -> None:
    source = np.arange(ELEMENTS, dtype="int32")
    width = STREAMS * LANES
    result = tvm.runtime.tensor(np.zeros(width, "int32"))
    module["stream"](tvm.runtime.tensor(source), result, 10, 3)
    np.testing.assert_array_equal(result.numpy(), 3 * source[: 10 * width].reshape(10, width).sum(axis=0))


def test_the_chain_visits_every_line_once_and_goes_on(module: tvm.runtime.Module) -> None:
    lines = 64
    chain = tvm.runtime.tensor(np.zeros(ELEMENTS, "int32"))
    module["chase_fill"](chain, lines)
    place = tensor(0)
    visited = []
    for _ in range(lines):
        module["chase"](chain, place, 1)
        visited.append(int(place.numpy()[0]))
    assert sorted(visited) == [line * LINE_ELEMENTS for line in range(lines)]
    steps = np.diff(visited)
    assert len(set(steps.tolist())) > lines // 4, "no prefetcher follows"
    module["chase"](chain, place, lines)
    assert place.numpy()[0] == visited[-1], "a whole round ends where it began"


def test_the_parallel_loop_runs_every_chunk(module: tvm.runtime.Module) -> None:
    result = tvm.runtime.tensor(np.full(2 * LINE_ELEMENTS, -1, "int32"))
    module["launch"](result)
    assert result.numpy()[[0, LINE_ELEMENTS]].tolist() == [0, 1]


def test_working_sets_lie_within_their_levels() -> None:
    board = board_for(declared()["x86_64-v3"])
    assert board is not None
    sets = working_sets(board.hardware, 64 << 20)
    inner = 0
    for level in board.hardware.levels:
        assert inner < sets[level.name]
        assert sets[level.name] < (level.size_bytes or 65 << 20)
        inner = level.size_bytes
    sizes = curve_sizes(board.hardware, 64 << 20)
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == 64 << 20
