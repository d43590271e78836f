"""Instructions of kernels: every one is counted, once, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest
import unicorn

from host.build import build_kernel_library, target_for
from host.emulation.counting import KernelCall, count_kernel, count_model
from host.emulation.kernel_run import ArgumentSpec
from host.emulation.library import BASE, SharedLibrary
from host.errors import EngineError
from host.gensor import Gensor
from host.model import DeviceProfile
from host.schedules import scheduled_function, space_for
from tests.emulation.boards import board_of
from tests.unit.lowering.numeric_types.test_quantised_weights import Kind, product
from tests.unit.schedules import functions as fn

ROWS, COLUMNS, DEPTH, LANES = 6, 16, 32, 4


def _library(board_name: str, folder: Path) -> tuple[Path, tuple[ArgumentSpec, ...]]:
    board = board_of(board_name)
    task = fn.task(fn.dense(ROWS, COLUMNS, DEPTH, LANES))
    space = space_for(task, board.hardware)
    profile = DeviceProfile(board_name, board, board.hardware, 1)
    (candidate,) = Gensor().propose(space, profile, (), 1, seed=0)
    path = folder / "kernel.so"
    function = scheduled_function(space.apply(candidate))
    build_kernel_library({"dense": function}, path, target_for(board))
    arguments = tuple((tuple(int(d) for d in p.shape), str(p.dtype)) for p in task.function.params)
    return path, arguments


def test_a_kernel_counts_what_single_steps_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library, arguments = _library("raspberry_pi_4", tmp_path)
    content = library.read_bytes()
    counted = count_kernel(content, "dense", arguments)
    stepped = 0
    start = unicorn.Uc.emu_start

    def watched(engine: unicorn.Uc, *given: int) -> None:
        def step(_: unicorn.Uc, address: int, size: int, data: object) -> None:
            nonlocal stepped
            stepped += 1

        top = BASE + SharedLibrary(content).memory_bytes
        engine.hook_add(unicorn.UC_HOOK_CODE, step, None, BASE, top)
        start(engine, *given)

    monkeypatch.setattr(unicorn.Uc, "emu_start", watched)
    assert count_kernel(content, "dense", arguments) == counted == stepped
    # A multiply-add for every vector at the very least.
    assert counted > ROWS * COLUMNS * DEPTH / LANES
    calls = [KernelCall("dense", arguments, 3)]
    assert count_model(library, calls) == 3 * counted


def test_products_of_bytes_are_counted(tmp_path: Path) -> None:
    """The emulator's usual processor has none of the instructions of a Cortex-A76."""
    board = board_of("raspberry_pi_5")
    model, _ = product(1, COLUMNS, 2 * DEPTH, Kind(4), board)
    [task] = [one for one in model.tasks if "dense" in one.name]
    space = space_for(task, board.hardware)
    profile = DeviceProfile(board.name, board, board.hardware, 1)
    (candidate,) = Gensor().propose(space, profile, (), 1, seed=0)
    path = tmp_path / "kernel.so"
    build_kernel_library({"dense": scheduled_function(space.apply(candidate))}, path, target_for(board))
    arguments = tuple((tuple(int(d) for d in p.shape), str(p.dtype)) for p in task.function.params)
    # Two SDOT for each four by four weights, at the very least.
    assert count_kernel(path.read_bytes(), "dense", arguments) > COLUMNS * 2 * DEPTH / 16 * 2


def test_what_cannot_be_counted_is_said(tmp_path: Path) -> None:
    library, arguments = _library("raspberry_pi_4", tmp_path)
    with pytest.raises(EngineError, match="no kernel other"):
        count_kernel(library.read_bytes(), "other", arguments)
    with pytest.raises(EngineError, match="cannot be run"):
        count_kernel(library.read_bytes(), "dense", arguments[:1])
    foreign, arguments = _library("visionfive2", tmp_path)
    with pytest.raises(EngineError, match="aarch64 only"):
        count_kernel(foreign.read_bytes(), "dense", arguments)
