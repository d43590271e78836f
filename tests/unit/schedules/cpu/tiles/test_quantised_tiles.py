"""Products of many rows with quantised weights in AMX tiles: what they compute, for every form of weights."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm

from device_agent.board.matrix_tiles import may_use_tiles
from host.build import target_for
from host.build.kernel import compile_function
from host.build.linker import link_shared
from host.model import LoweredModel, Task
from host.schedules import scheduled_function, space_for
from host.schedules.design import DesignSpace
from targets import Board, MachineDescription, board_for
from tests.scheduling.repetitions import in_turn
from tests.unit.lowering.numeric_types.test_quantised_weights import KINDS, Kind, product

_FEATURES = ("avx2", "fma", "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512_vnni")
_TILES = ("avx512_bf16", "amx_tile", "amx_int8", "amx_bf16")


def tiles_board(cores: int = 1, more: tuple[str, ...] = _TILES) -> Board:
    """An x86-64 board whose processor has AMX."""
    caches = {"L1": 48 << 10, "L2": 2 << 20, "L3": 32 << 20}
    found = board_for(MachineDescription("x86_64", "Xeon", cores, (*_FEATURES, *more), caches, 3e9, 8 << 30))
    assert found is not None
    return found


def runs_here() -> bool:
    """Whether this machine has the tiles, and Linux gives them to this process."""
    path = Path("/proc/cpuinfo")
    return path.exists() and " amx_bf16" in path.read_text(encoding="utf-8") and may_use_tiles()


def task_of(model: LoweredModel) -> Task:
    """The product's task."""
    [task] = [one for one in model.tasks if "dense" in one.name]
    return task


def callable_of(content: bytes) -> Any:
    """A compiled kernel to call; the test is skipped where the processor has no tiles."""
    if not runs_here():
        pytest.skip("this processor has no AMX: the program is compiled and not run")
    with tempfile.TemporaryDirectory() as folder:
        object_file, library = Path(folder) / "kernel.o", Path(folder) / "kernel.so"
        object_file.write_bytes(content)
        link_shared([object_file], library, "x86_64")
        return tvm.runtime.load_module(str(library))["kernel"]


def made_of(
    space: DesignSpace, values: dict[str, int], model: LoweredModel, data: np.ndarray, on: Board
) -> np.ndarray:
    """The product as a program computes it."""
    function = scheduled_function(space.apply(space.candidate(values, "test")))
    kernel = callable_of(compile_function(function, "kernel", target_for(on)))
    shape = tuple(map(int, function.params[-1].shape))
    output = tvm.runtime.tensor(np.full(shape, 77, "float32"))
    kernel(*(tvm.runtime.tensor(one) for one in (data, *model.parameters)), output)
    return np.asarray(output.numpy())


def fits(kind: Kind) -> bool:
    """Whether groups are whole tiles."""
    return kind.group % 32 == 0


def halved(name: str) -> Kind:
    """The kind, in a call whose operands may be numbers of bfloat16."""
    return KINDS[name]._replace(halved=True)


@in_turn("kind, form", KINDS, [((32, 64, 192), 1), ((64, 40, 64), 2), ((96, 48, 1280), 1)])
def test_random_programs_compute_the_product(kind: str, form: tuple[tuple[int, int, int], int]) -> None:
    (rows, columns, depth), threads = form
    on = tiles_board(threads)
    model, weight = product(rows, columns, depth, halved(kind), on)
    space = space_for(task_of(model), on.hardware, threads)
    assert space.rule.name == ("quantised_tiles" if fits(KINDS[kind]) else "quantised")
    if not fits(KINDS[kind]):
        return
    data = np.random.default_rng(1).normal(size=(rows, depth)).astype("float32")
    data[0, :32], data[-1, -1] = 0.0, 1e4
    values = space.sample(random.Random(rows + len(kind)))
    made = made_of(space, values, model, data, on)[:, :columns]
    wanted = data.astype("float64") @ weight.T.astype("float64")
    # Both operands are rounded to eight bits of their own.
    bound = np.abs(data) @ np.abs(weight).T * 2.0**-7 + 1e-5 * np.abs(wanted).max()
    # Of weights with zero points and minima, it is their parts that are rounded.
    assert (np.abs(made - wanted) <= bound).all()
    assert np.sqrt(np.mean((made - wanted) ** 2)) <= 3e-3 * np.sqrt(np.mean(wanted**2))


@pytest.mark.parametrize("kind", ["int4", "int8 with zero points", "Q4_K"])
@pytest.mark.parametrize("rows, halved", [(64, False), (36, True)])
def test_products_that_keep_16_bits_are_in_no_tiles(kind: str, rows: int, halved: bool) -> None:
    """Whoever allows no rounding gets what single precision gives; so do rows that fill no tiles."""
    on = tiles_board()
    model, weight = product(rows, 64, 512, KINDS[kind]._replace(halved=halved), on)
    space = space_for(task_of(model), on.hardware)
    assert space.rule.name == "quantised"
    data = np.random.default_rng(2).normal(size=(rows, 512)).astype("float32")
    made = made_of(space, space.sample(random.Random(rows)), model, data, on)[:, :64]
    wanted = data.astype("float64") @ weight.T.astype("float64")
    assert np.abs(made - wanted).max() <= 2e-4 * np.abs(wanted).max()
