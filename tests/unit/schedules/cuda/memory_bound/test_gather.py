"""Elements at computed places on a GPU: images of another resolution, and rows of a table by number."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

from benchmarks.gpu.machine_code import opcodes_of, widths
from host.gensor import Gensor
from host.model import DeviceProfile
from host.schedules import DesignSpace, scheduled_function, space_for
from tests.cuda_emulator.run import Emulated, emulate
from tests.scheduling.repetitions import seeds
from tests.unit.schedules import functions as fn
from tests.unit.schedules.cuda.cuda_cases import Case, gpu_board, gpu_target

_GENERATOR = np.random.default_rng(5)


def _resized(size: int, made: int, channels: int, dtype: str = "float16", relu: bool = False) -> Case:
    """Twice the neighbours beside a place along each side, weighed by how near they are."""
    a, scale = te.placeholder((1, size, size, channels), dtype, "A"), size / made
    wide = te.compute(a.shape, lambda *i: a(*i).astype("float32"), name="wide")

    def beside(index: Any) -> tuple[Any, Any, Any]:
        place = index.astype("float32") * tirx.const(scale, "float32")
        place = te.max(te.min(place + (0.5 * scale - 0.5), size - 1.0), 0.0)
        lower = place.astype("int32")
        return lower, te.min(lower + 1, size - 1), place - lower.astype("float32")

    def element(n: Any, y: Any, x: Any, c: Any) -> Any:
        (above, below, down), (left, right, along) = beside(y), beside(x)
        row = [wide[n, one, left, c] + (wide[n, one, right, c] - wide[n, one, left, c]) * along
               for one in (above, below)]  # fmt: skip
        return row[0] + (row[1] - row[0]) * down

    image = te.compute((1, made, made, channels), element, name="resize")
    zero = tirx.const(0.0, "float32")
    end = te.compute(
        image.shape, lambda *i: (te.max(image(*i), zero) if relu else image(*i)).astype(dtype), name="end"
    )
    given = _GENERATOR.standard_normal((1, size, size, channels)).astype(dtype)
    places = np.clip(np.arange(made) * scale + 0.5 * scale - 0.5, 0, size - 1)
    lower = places.astype(int)
    upper, part = np.minimum(lower + 1, size - 1), (places - lower)[:, None]
    exact = given.astype("float64")
    rows = exact[:, lower] + (exact[:, upper] - exact[:, lower]) * part[:, None]
    wanted = rows[:, :, lower] + (rows[:, :, upper] - rows[:, :, lower]) * part
    wanted = np.maximum(wanted, 0) if relu else wanted
    return Case(te.create_prim_func([a, end]), (given,), wanted.astype(dtype))


def _rows(count: int, length: int, numbers: int, dtype: str, added: bool = False) -> Case:
    """Rows of a table by their numbers, with others added."""
    table, index = te.placeholder((count, length), dtype, "T"), te.placeholder((numbers,), "int64", "I")
    other = te.placeholder((numbers, length), dtype, "O")

    def element(i: Any, j: Any) -> Any:
        place = te.max(te.min(index[i].astype("int32"), count - 1), 0)
        found = table[place, j]
        return (found.astype("float32") + other[i, j].astype("float32")).astype(dtype) if added else found

    made = te.compute((numbers, length), element, name="take")
    given = _GENERATOR.standard_normal((count, length)).astype(dtype)
    wanted_rows = _GENERATOR.integers(0, count, numbers)
    more = _GENERATOR.standard_normal((numbers, length)).astype(dtype)
    wanted = given[wanted_rows] + (more if added else 0)
    if added:
        return Case(te.create_prim_func([table, index, other, made]), (given, wanted_rows, more), wanted)
    return Case(te.create_prim_func([table, index, made]), (given, wanted_rows), wanted.astype(dtype))


CASES: dict[str, Callable[[], Case]] = {
    "image of halves": lambda: _resized(5, 10, 16),
    "image with an activation": lambda: _resized(4, 9, 24, relu=True),
    "image in single precision": lambda: _resized(6, 11, 12, "float32"),
    "rows of halves": lambda: _rows(31, 40, 7, "float16"),
    "rows in single precision": lambda: _rows(13, 20, 9, "float32"),
    "rows of which others are added": lambda: _rows(17, 24, 5, "float16", added=True),
}


def _space(case: Case) -> DesignSpace:
    return space_for(fn.task(case.function), gpu_board().hardware)


def _run(case: Case, values: dict[str, int], folder: Path) -> Emulated:
    space = _space(case)
    assert space.rule.name == "cuda_gather"
    assert space.legal(values)
    made = np.full(case.output.shape, np.nan, case.output.dtype)
    function = scheduled_function(space.apply(space.candidate(values, "test")))
    done = emulate(function, [*case.inputs, made], gpu_target(), folder)
    np.testing.assert_allclose(made, case.output, rtol=2e-3, atol=2e-3, err_msg=str(values))
    assert not any(one.spills for one in done.kernel.resources), values
    return done


@seeds(3)
@pytest.mark.parametrize("name", CASES)
def test_random_programs_compute_the_task(name: str, seed: int, tmp_path: Path) -> None:
    case = CASES[name]()
    space, generator = _space(case), random.Random(name)
    _run(case, [space.sample(generator) for _ in range(seed + 1)][-1], tmp_path)


def test_neighbours_are_loaded_and_stored_at_once(tmp_path: Path) -> None:
    """By the machine code: four places of eight halves and their result; a thread had one half before."""
    done = _run(CASES["image of halves"](), {"threads": 32, "vector": 8}, tmp_path)
    (opcodes,) = opcodes_of(done.kernel.cubin.content).values()
    assert widths(Counter(opcodes)) == {"16": 5}


def test_an_image_takes_hardly_longer_than_to_move_it() -> None:
    """Four times the sides of 32x32x16 halves took an Orin Nano 61 us, 8 of them memory (estimates)."""
    case, board = _resized(32, 128, 16), gpu_board()
    space, gpu = _space(case), board.hardware.gpu
    assert gpu is not None
    (found,) = Gensor().propose(space, DeviceProfile("gpu", board, board.hardware, 1), (), 1, seed=0)
    memory_s = 2 * (case.inputs[0].size + case.output.size) / gpu.level("DRAM").bandwidth_bytes_per_s
    assert memory_s + gpu.launch_s <= found.estimate_s < 1.5 * memory_s + gpu.launch_s
    generator = random.Random(0)
    best = min(space.estimate_s(space.sample(generator)) for _ in range(64))
    assert best / found.estimate_s >= 0.995


def test_elements_without_neighbours_are_left_to_other_rules() -> None:
    """Five channels, and a table whose columns are chosen."""
    table, index = te.placeholder((8, 16), "float32", "T"), te.placeholder((8,), "int32", "I")
    columns = te.compute((8, 8), lambda i, j: table[i, index[j]], name="take")
    for function in (_resized(4, 8, 5).function, te.create_prim_func([table, index, columns]),
                     fn.addition(1, 7, 13, 4), fn.transpose((1, 6, 4, 16), (0, 2, 3, 1))):  # fmt: skip
        assert space_for(fn.task(function), gpu_board().hardware).rule.name == "cuda_injective"
