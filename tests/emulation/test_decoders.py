"""Kernels of language models on emulated boards, beside NumPy: quantised products, attention over caches."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from host.gensor import Gensor
from host.model import DeviceProfile, Task
from host.schedules import scheduled_function, space_for
from targets import Board
from tests.decoders.operations import cached_attention
from tests.emulation.boards import PROCESSORS, board_of
from tests.emulation.qemu import Call, executable, run
from tests.unit.lowering.attention.test_cached_attention import Case, lowered
from tests.unit.lowering.numeric_types.test_quantised_weights import KINDS, bound, product

# Board, and the instruction by which its processors add up products; "" where they widen bytes, or have no
# vectors.
BOARDS = {
    "raspberry_pi_5": "s8s8",
    "jetson_agx_thor": "s8s8",
    "raspberry_pi_4": "",
    "rv64gcv": "",
    "rv64gc": "",
}
# The instruction on Arm, and vectors on RISC-V; the others by hand.
EACH = [
    pytest.param(one, marks=[] if one in ("raspberry_pi_5", "rv64gcv") else [pytest.mark.long])
    for one in BOARDS
]
CASES = [
    Case(1, 6, 2, 32, 64),
    Case(4, 4, 2, 24, 64, window=9),
    Case(1, 6, 2, 32, 64, kept="float16"),
    Case(4, 4, 2, 24, 64, window=9, kept="float16"),
]


def program(task: Task, board: Board, **values: int) -> object:
    """The first program of a task, as it is compiled for a board, or the one of these decisions."""
    threads = values.get("parallel", 1)
    # As if threads were woken in no time: the caches are small, and all of their positions are shared.
    hardware = replace(board.hardware, parallel_launch_s=1e-12) if values else board.hardware
    space = space_for(task, hardware, threads)
    assert space.rule.name in ("quantised", "cached_attention")
    profile = DeviceProfile(board.name, board, board.hardware, threads)
    (candidate,) = Gensor().propose(space, profile, (), 1, seed=0)
    return scheduled_function(space.apply(space.candidate(values, "test") if values else candidate))


def near(
    board: Board,
    functions: Mapping[str, Any],
    calls: Sequence[Call],
    wanted: Sequence[tuple[np.ndarray, np.ndarray]],
    folder: Path,
) -> list[np.ndarray]:
    """The results of calls on a board's first processor, no further from the exact ones than is allowed."""
    emulated = executable(board, functions, folder)
    found = run(emulated, list(functions), calls, board.architecture, PROCESSORS[board.name][0])
    made = [one[-1][:, : exact.shape[1]] for one, (exact, _) in zip(found, wanted, strict=True)]
    for ours, (exact, most) in zip(made, wanted, strict=True):
        assert (np.abs(ours - exact) <= most).all()
    return made


@pytest.mark.parametrize("name", EACH)
def test_quantised_products(name: str, tmp_path: Path) -> None:
    board = board_of(name)
    assert (board.hardware.dot_product or "") == BOARDS[name]
    functions, calls, wanted = {}, [], []
    for kind in KINDS.values():
        # A step has one row, and the prefill several.
        for rows in (1, 4) if kind in (KINDS["int4"], KINDS["int8"]) else (2,):
            model, weight = product(rows, 40, 192, kind, board)
            [task] = [one for one in model.tasks if "dense" in one.name]
            functions[task.workload_hash] = program(task, board)
            data = np.random.default_rng(rows).normal(size=(rows, 192)).astype("float32")
            made = np.zeros(tuple(map(int, task.function.params[-1].shape)), "float32")
            calls.append(Call(task.workload_hash, (data, *model.parameters, made)))
            exact = data.astype("float64") @ weight.T.astype("float64")
            wanted.append((exact, bound(data, weight, kind, board)))
    emulated = executable(board, functions, tmp_path)
    for processor in PROCESSORS[name]:
        found = run(emulated, list(functions), calls, board.architecture, processor)
        for values, (exact, most) in zip(found, wanted, strict=True):
            ours = values[-1][:, : exact.shape[1]]
            assert (np.abs(ours - exact) <= most).all()


def test_products_of_long_vectors_are_made_in_loops(tmp_path: Path) -> None:
    """Registers of 256 bits: the steps of a group, of both planes and of several rows, come part by part."""
    board = board_of("spacemit_k1")
    functions, calls, wanted = {}, [], []
    for name in ("int4", "int8", "Q6_K", "Q4_K", "int4, rounded", "int8, rounded"):
        data = np.random.default_rng(2).normal(size=(3, 192)).astype("float32")
        for rows in (1, 3):
            model, weight = product(rows, 72, 192, KINDS[name], board)
            [task] = [one for one in model.tasks if "dense" in one.name]
            functions[task.workload_hash] = function = program(task, board)
            assert "for part in range(4)" in str(function)
            made = np.zeros(tuple(map(int, task.function.params[-1].shape)), "float32")
            calls.append(Call(task.workload_hash, (data[:rows], *model.parameters, made)))
            exact = data[:rows].astype("float64") @ weight.T.astype("float64")
            wanted.append((exact, bound(data[:rows], weight, KINDS[name], board)))
    made = near(board, functions, calls, wanted, tmp_path)
    for one, several in zip(made[::2], made[1::2], strict=True):
        assert (several[0] == one[0]).all()


def test_matrices_of_bytes_have_any_number_of_rows(tmp_path: Path) -> None:
    """SMMLA takes two rows or planes: of a step, of what is verified, of chunks, of a row without another."""
    board = board_of("jetson_agx_thor")
    functions, calls, wanted, draw = {}, [], [], random.Random(0)
    for name in ("int4", "int8", "int4, rounded", "int8, rounded", "Q6_K, rounded", "Q4_K"):
        data = np.random.default_rng(1).normal(size=(6, 192)).astype("float32")
        for rows in (1, 3, 6):
            model, weight = product(rows, 48, 192, KINDS[name], board)
            [task] = [one for one in model.tasks if "dense" in one.name]
            values = space_for(task, board.hardware).sample(draw)
            functions[task.workload_hash] = function = program(task, board, **values)
            assert "smmla" in str(function)
            result = np.zeros(tuple(map(int, task.function.params[-1].shape)), "float32")
            calls.append(Call(task.workload_hash, (data[:rows], *model.parameters, result)))
            exact = data[:rows].astype("float64") @ weight.T.astype("float64")
            wanted.append((exact, bound(data[:rows], weight, KINDS[name], board)))
    made = near(board, functions, calls, wanted, tmp_path)
    # Those of a row are the same bits, however many rows a call has.
    for one, *others in zip(made[::3], made[1::3], made[2::3], strict=True):
        assert all((rows[0] == one[0]).all() for rows in others)


@pytest.mark.parametrize("name", EACH)
def test_attention_over_a_cache(name: str, tmp_path: Path) -> None:
    board = board_of(name)
    functions, calls, wanted = {}, [], []
    # Two threads share the positions of a head; here, one takes both parts.
    shared = [(case, {"splits": 2, "parallel": 2}) for case in CASES[1:3]]
    every = [*((case, {}) for case in CASES), *shared]
    for case, values in every:
        [task] = lowered(case, board).tasks
        name_of_program = f"{task.workload_hash}_{len(values)}"
        functions[name_of_program] = program(task, board, **values)
        draw = np.random.default_rng(case.size)
        # Positions before this call are kept from others.
        arrays = [draw.normal(size=shape).astype(dtype) for shape, dtype in case.shapes]
        arrays[3] = np.array([37], np.int32)
        made = np.zeros(case.shapes[0][0], "float32")
        calls.append(Call(name_of_program, (*arrays, made)))
        query, key, value, position, *kept = arrays
        keys, values = (one.astype("float32") for one in kept)
        result = cached_attention(query, key, value, position, keys, values, case.options)
        wanted.append((keys, values, result))
    emulated = executable(board, functions, tmp_path)
    for processor in PROCESSORS[name]:
        found = run(emulated, list(functions), calls, board.architecture, processor)
        for (case, _), arguments, expected in zip(every, found, wanted, strict=True):
            tolerance = 1e-3 if case.kept == "float16" else 2e-5
            for ours, exact in zip(arguments[4:], expected, strict=True):
                np.testing.assert_allclose(ours, exact, rtol=0, atol=tolerance * np.abs(exact).max())
