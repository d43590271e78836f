"""Rows whose threads take neighbours, up to 16 bytes at once: norms, softmax, means, greatest places."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tvm import te, tirx

from benchmarks.gpu.machine_code import opcodes_of, widths
from host.gensor import Gensor
from host.model import DeviceProfile
from host.schedules import DesignSpace, scheduled_function, space_for
from tests.cuda_emulator import source
from tests.cuda_emulator.run import Emulated, emulate
from tests.scheduling.repetitions import seeds
from tests.unit.schedules import functions as fn
from tests.unit.schedules.cuda.cuda_cases import Case, gpu_board, gpu_target

_BOARD = gpu_board()


def _drawn(*shape: int, seed: int = 0, dtype: str = "float16") -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def _norm(rows: int, length: int, dtype: str = "float16", residual: bool = False) -> Case:
    """A norm of halves as lowering makes it: sums of numbers and of squares, then scaled and rounded."""
    shape = (rows, length)
    inputs = [te.placeholder(shape, "float16", name) for name in ("A", "R")[: 1 + residual]]
    scale = te.placeholder((length,), "float32", "S")
    wide = te.compute(shape, lambda i, j: sum(one[i, j].astype("float32") for one in inputs), name="wide")
    k, n = te.reduce_axis((0, length), "k"), te.reduce_axis((0, length), "n")
    total = te.compute((rows,), lambda i: te.sum(wide[i, k], k), name="total")
    squares = te.compute((rows,), lambda i: te.sum(wide[i, n] * wide[i, n], n), name="squares")
    share = tirx.const(1.0 / length, "float32")

    def deviation(i: tirx.Var) -> tirx.PrimExpr:
        mean = total[i] * share
        return tirx.rsqrt(squares[i] * share - mean * mean + tirx.const(1e-5, "float32"))

    factor = te.compute((rows,), deviation, name="factor")

    def end(i: tirx.Var, j: tirx.Var) -> tirx.PrimExpr:
        value = (wide[i, j] - total[i] * share) * factor[i] * scale[j]
        if dtype == "int8":
            value = te.max(te.min(te.round(value * 20.0), 127.0), -128.0)
        return value.astype(dtype)

    function = te.create_prim_func([*inputs, scale, te.compute(shape, end, name="end")])
    given = tuple(_drawn(*shape, seed=number) for number in range(1 + residual))
    by = _drawn(length, seed=7, dtype="float32")
    exact = sum(one.astype("float64") for one in given)
    normed = (exact - exact.mean(-1, keepdims=True)) / np.sqrt(exact.var(-1, keepdims=True) + 1e-5) * by
    wanted = np.clip(np.round(normed * 20), -128, 127) if dtype == "int8" else normed
    return Case(function, (*given, by), wanted.astype(dtype))


def _softmax(rows: int, length: int, dtype: str) -> Case:
    """Of halves; in single precision as a model is lowered to it."""
    given = _drawn(rows, length, dtype=dtype)
    wanted = fn.softmax_numpy(given.astype("float64")).astype(dtype)
    if dtype == "float32":
        return Case(fn.lowered_softmax(rows, length), (given,), wanted)
    a = te.placeholder((rows, length), dtype, "A")
    k, n = te.reduce_axis((0, length), "k"), te.reduce_axis((0, length), "n")
    most = te.compute((rows,), lambda i: te.max(a[i, k].astype("float32"), k), name="most")
    power = te.compute((rows, length), lambda i, j: te.exp(a[i, j].astype("float32") - most[i]), name="power")
    total = te.compute((rows,), lambda i: te.sum(power[i, n], n), name="total")
    end = te.compute((rows, length), lambda i, j: (power[i, j] / total[i]).astype(dtype), name="end")
    return Case(te.create_prim_func([a, end]), (given,), wanted)


def _mean(rows: int, length: int) -> Case:
    """Of bytes; a number of each row is all that is stored."""
    a, k = te.placeholder((rows, length), "int8", "A"), te.reduce_axis((0, length), "k")
    total = te.compute((rows, 1), lambda i, _: te.sum(a[i, k].astype("int32"), k), name="total")
    end = te.compute((rows, 1), lambda i, j: total[i, j].astype("float32") / float(length), name="end")
    given = np.random.default_rng(0).integers(-128, 127, (rows, length)).astype("int8")
    return Case(te.create_prim_func([a, end]), (given,), given.mean(-1, keepdims=True, dtype="float32"))


def _mean_of_images(*shape: int) -> Case:
    """In single precision as a model is lowered to it; vectors end with the rows of an image."""
    given = _drawn(*shape, dtype="float32")
    return Case(fn.lowered_mean(*shape), (given,), given.mean((1, 2), keepdims=True))


def _greatest(rows: int, length: int) -> Case:
    """The greatest of each row, by the reduction alone."""
    a, k = te.placeholder((rows, length), "float16", "A"), te.reduce_axis((0, length), "k")
    made = te.compute((rows,), lambda i: te.max(a[i, k].astype("float32"), k), name="most")
    given = _drawn(rows, length)
    return Case(te.create_prim_func([a, made]), (given,), given.astype("float32").max(-1))


CASES: dict[str, Callable[[], Case]] = {
    "norm": lambda: _norm(10, 192),
    "norm of a ragged row": lambda: _norm(6, 328),
    "norm of a sum": lambda: _norm(4, 96, residual=True),
    "norm to bytes": lambda: _norm(6, 192, "int8"),
    "softmax": lambda: _softmax(6, 144, "float32"),
    "softmax of halves": lambda: _softmax(9, 72, "float16"),
    "mean of bytes": lambda: _mean(12, 160),
    "mean over two axes": lambda: _mean_of_images(10, 6, 16),
    "greatest": lambda: _greatest(7, 136),
}


def _space(case: Case) -> DesignSpace:
    space = space_for(fn.task(case.function), _BOARD.hardware)
    assert space.rule.name == "cuda_rowwise"
    return space


def _run(case: Case, values: dict[str, int], folder: Path) -> tuple[Emulated, np.ndarray]:
    space = _space(case)
    made = np.full(case.output.shape, 99, case.output.dtype)
    function = scheduled_function(space.apply(space.candidate(values, "test")))
    return emulate(function, [*case.inputs, made], gpu_target(), folder), made


def _same(made: np.ndarray, wanted: np.ndarray) -> None:
    step = 1.01 if made.dtype == np.int8 else 0.0
    wide = (made.astype("float64"), wanted.astype("float64"))
    np.testing.assert_allclose(*wide, rtol=3e-3, atol=step or 3e-3)


@seeds(6)
@pytest.mark.parametrize("name", CASES)
def test_random_programs_with_vectors_compute_the_rows(name: str, seed: int, tmp_path: Path) -> None:
    case = CASES[name]()
    space, generator = _space(case), random.Random(11)
    drawn = (space.sample(generator) for _ in itertools.count())
    values = next(itertools.islice((one for one in drawn if one["vector"] > 1), 2 * seed, None))
    assert not space.traces(space.candidate(values, "test"))
    done, made = _run(case, values, tmp_path)
    _same(made, case.output)
    assert not done.counters.access_conflicts and not done.counters.not_counted, values
    assert not any(one.spills for one in done.kernel.resources), values


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("norm", {"threads": 64, "rows": 5, "inline": 0, "vector": 2}),
        ("norm", {"threads": 4, "rows": 10, "inline": 1, "vector": 8}),
        ("norm of a ragged row", {"threads": 32, "rows": 3, "inline": 0, "vector": 8}),
        ("norm of a ragged row", {"threads": 64, "rows": 1, "inline": 0, "vector": 4}),
        ("softmax of halves", {"threads": 2, "rows": 9, "inline": 0, "vector": 8}),
        ("softmax", {"threads": 32, "rows": 2, "inline": 0, "vector": 4}),
        ("softmax", {"threads": 64, "rows": 4, "inline": 0, "vector": 2}),
        ("mean of bytes", {"threads": 8, "rows": 8, "inline": 0, "vector": 8}),
        ("mean over two axes", {"threads": 4, "rows": 4, "inline": 0, "vector": 4}),
        ("greatest", {"threads": 64, "rows": 2, "inline": 0, "vector": 2}),
    ],
)
def test_warps_rows_and_what_is_kept(name: str, values: dict[str, int], tmp_path: Path) -> None:
    """Several warps of a row, rows of a warp, turns and blocks that are not full, powers in registers."""
    case = CASES[name]()
    done, made = _run(case, values, tmp_path)
    _same(made, case.output)
    assert not done.counters.access_conflicts


def test_loads_and_stores_are_of_16_bytes(tmp_path: Path) -> None:
    done, made = _run(CASES["norm"](), {"threads": 8, "rows": 2, "inline": 0, "vector": 8}, tmp_path)
    found = widths(sum(opcodes_of(done.kernel.cubin.content).values(), start=Counter()))
    assert set(found) == {"16"}, "eight halves of the row, and twice four of what scales it"
    assert made.dtype == np.float16


def test_the_barrier_between_warps_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = source.translated
    monkeypatch.setattr(source, "translated", lambda text: real(text).replace("__syncthreads();", ""))
    case = CASES["norm of a ragged row"]()
    _, made = _run(case, {"threads": 64, "rows": 1, "inline": 0, "vector": 4}, tmp_path)
    assert not np.allclose(made.astype("float64"), case.output.astype("float64"), rtol=3e-3, atol=3e-3)


@pytest.mark.parametrize(
    ("length", "vectors"), [(192, (1, 2, 4, 8)), (100, (1, 2, 4)), (198, (1, 2)), (197, None)]
)
def test_vectors_divide_a_row(length: int, vectors: tuple[int, ...] | None) -> None:
    found = {one.name: one.choices for one in _space(_norm(4, length)).decisions}
    assert found.get("vector") == vectors


def test_rows_that_begin_anywhere_have_no_vectors() -> None:
    """The last 64 of 65 numbers: every other row begins at an odd place."""
    a, k = te.placeholder((6, 65), "float16", "A"), te.reduce_axis((0, 64), "k")
    part = te.compute((6, 64), lambda i, j: a[i, j + 1].astype("float32"), name="part")
    made = te.compute((6,), lambda i: te.sum(part[i, k], k), name="total")
    space = _space(Case(te.create_prim_func([a, made]), (), np.zeros(6)))
    assert "vector" not in {one.name for one in space.decisions}


@pytest.mark.parametrize(("length", "shared"), [(32, "vector"), (16384, "splits")])
@pytest.mark.parametrize("turned", [False, True])
def test_rows_in_another_order_are_no_threads_own(length: int, shared: str, turned: bool) -> None:
    """A transpose of as many rows as columns of rows: what a thread knows is of another row."""
    shape = (2, 2, length)
    a, k = te.placeholder(shape, "float16", "A"), te.reduce_axis((0, length), "k")
    total = te.compute(shape[:2], lambda i, j: te.sum(a[i, j, k].astype("float32"), k), name="total")

    def end(i: tirx.Var, j: tirx.Var, n: tirx.Var) -> tirx.PrimExpr:
        row = (j, i) if turned else (i, j)
        return a[(*row, n)].astype("float32") - total[row]

    function = te.create_prim_func([a, te.compute(shape, end, name="end")])
    space = _space(Case(function, (), np.zeros(shape)))
    assert (shared in {one.name for one in space.decisions}) == (not turned)


@pytest.mark.parametrize(("rows", "length"), [(197, 192), (79, 144), (257, 384)])
def test_vectors_are_chosen_for_norms_of_halves(rows: int, length: int) -> None:
    """By the estimate, which Gensor's construction reaches."""
    space = _space(_norm(rows, length))
    (found,) = Gensor().propose(space, DeviceProfile("gpu", _BOARD, _BOARD.hardware, 1), (), 1, seed=0)
    generator = random.Random(0)
    drawn = [space.sample(generator) for _ in range(4096)]
    best = min(map(space.estimate_s, drawn))
    assert found.estimate_s <= best / 0.995
    assert dict(found.decisions)["vector"] > 1
    alone = min(space.estimate_s(values) for values in drawn if values["vector"] == 1)
    assert best < alone
