"""Chains whose inputs lie in another order than the output, turned in tiles of shared memory."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tvm import te, tirx

from benchmarks.gpu.machine_code import opcodes_of, widths
from host.gensor import Gensor
from host.model import DeviceProfile
from host.schedules import DesignSpace, scheduled_function, space_for
from host.schedules.cuda.injective.transposition import layout_of
from host.schedules.cuda.tiled.banks import apart
from tests.cuda_emulator import source
from tests.cuda_emulator.run import emulate
from tests.unit.schedules import functions as fn
from tests.unit.schedules.cuda.cuda_cases import Case, gpu_board, gpu_target

_BOARD = gpu_board()
_TILES = ("rows", "columns", "fetch", "vector", "threads")


@dataclass(frozen=True)
class Turned:
    """A permutation of axes, and what is computed on the way.

    Attributes:
        shape: of the input.
        order: axes of the input in the order of the output.
        dtype: of the inputs.
        made: of the output.
        beside: how many further inputs there are: one of the output's order, then one of the first input's.
        tiles: decisions, in the order of `_TILES`.
    """

    shape: tuple[int, ...]
    order: tuple[int, ...]
    tiles: tuple[int, ...]
    dtype: str = "float16"
    made: str = "float16"
    beside: int = 0


CASES = {
    "images to channels first": Turned((2, 6, 8, 96), (0, 3, 1, 2), (32, 32, 8, 8, 64)),
    "images to channels last": Turned((2, 40, 5, 14), (0, 2, 3, 1), (32, 32, 2, 8, 128)),
    "ragged both ways": Turned((3, 45, 37), (0, 2, 1), (32, 16, 1, 1, 32)),
    "three channels": Turned((1, 3, 200), (0, 2, 1), (64, 4, 8, 1, 32)),
    "to three channels first": Turned((200, 3), (1, 0), (4, 64, 1, 1, 32)),
    "short rows that memory goes on behind": Turned((24, 16, 4), (2, 1, 0), (64, 16, 4, 8, 64)),
    "single precision": Turned((70, 36), (1, 0), (32, 64, 4, 2, 128), "float32", "float32"),
    "bytes": Turned((64, 48), (1, 0), (32, 32, 16, 16, 32), "int8", "int8"),
    "integers": Turned((33, 2, 20), (2, 1, 0), (16, 16, 4, 1, 64), "int32", "int32"),
    "widened": Turned((37, 64), (1, 0), (64, 32, 8, 1, 256), "float16", "float32"),
    "bytes to halves": Turned((2, 24, 40), (0, 2, 1), (32, 16, 8, 8, 32), "int8", "float16"),
    "both orders": Turned((2, 40, 56), (0, 2, 1), (32, 32, 8, 8, 64), beside=1),
    "two turned and one straight": Turned((34, 48), (1, 0), (32, 32, 8, 2, 64), beside=2),
}


def _case(turned: Turned) -> Case:
    shape, order = turned.shape, turned.order
    out = tuple(shape[axis] for axis in order)
    shapes = [shape, out, shape][: turned.beside + 1]
    inputs = [te.placeholder(size, turned.dtype, name) for size, name in zip(shapes, "ABC", strict=False)]
    two = tirx.const(2.0, "float32")
    # In front of the transposition, in the input's own order.
    scaled = te.compute(shape, lambda *i: inputs[0](*i).astype("float32") * two, "scaled")

    def element(*i: tirx.Var) -> tirx.PrimExpr:
        there = tuple(i[order.index(axis)] for axis in range(len(shape)))
        value = scaled(*there)
        if turned.beside:
            value = value + inputs[1](*i).astype("float32")
        if turned.beside > 1:
            value = value - inputs[2](*there).astype("float32")
        return value.astype(turned.made)

    function = te.create_prim_func([*inputs, te.compute(out, element, "turned")])
    generator = np.random.default_rng(0)
    # Numbers that halves and bytes hold, doubled and added up.
    given = tuple(generator.integers(-20, 20, size).astype(turned.dtype) for size in shapes)
    wide = [one.astype("float32") for one in given]
    wanted = 2 * wide[0].transpose(order)
    if turned.beside:
        wanted = wanted + wide[1]
    if turned.beside > 1:
        wanted = wanted - wide[2].transpose(order)
    return Case(function, given, wanted.astype(turned.made))


def _space(case: Case) -> DesignSpace:
    space = space_for(fn.task(case.function), _BOARD.hardware)
    assert space.rule.name == "cuda_injective"
    return space


@pytest.mark.parametrize("name", CASES)
def test_tiles_are_turned_without_conflicts(name: str, tmp_path: Path) -> None:
    case = _case(CASES[name])
    space = _space(case)
    values = dict(zip(_TILES, CASES[name].tiles, strict=True))
    assert space.legal(values), [(one.name, one.choices) for one in space.decisions]
    assert not space.traces(space.candidate(values, "test"))
    made = np.zeros(case.output.shape, case.output.dtype)
    function = scheduled_function(space.apply(space.candidate(values, "test")))
    done = emulate(function, [*case.inputs, made], gpu_target(), tmp_path)
    np.testing.assert_array_equal(made, case.output)
    assert done.counters.accesses and not done.counters.not_counted
    assert not done.counters.access_conflicts
    (resources,) = done.kernel.resources
    assert not resources.spills


def test_loads_and_stores_are_of_16_bytes(tmp_path: Path) -> None:
    turned = CASES["images to channels first"]
    case = _case(turned)
    space, made = _space(case), np.zeros(case.output.shape, "float16")
    values = dict(zip(_TILES, turned.tiles, strict=True))
    function = scheduled_function(space.apply(space.candidate(values, "test")))
    done = emulate(function, [*case.inputs, made], gpu_target(), tmp_path)
    found = widths(sum(opcodes_of(done.kernel.cubin.content).values(), start=Counter()))
    # Two turns of a load and of a store: 32 x 32 elements, 64 threads, 8 elements.
    assert found == {"16": 4}


def test_booleans_are_turned(tmp_path: Path) -> None:
    """TVM takes two bytes for each of a vector of them, so that none are left in shared memory as vectors."""
    case = _case(Turned((40, 36), (1, 0), (), "bool", "bool"))
    space, made = _space(case), np.zeros(case.output.shape, "bool")
    for tiles in ((16, 16, 2, 4, 32), (16, 32, 4, 1, 32)):
        values = dict(zip(_TILES, tiles, strict=True))
        assert space.legal(values)
        function = scheduled_function(space.apply(space.candidate(values, "test")))
        emulate(function, [*case.inputs, made], gpu_target(), tmp_path)
        np.testing.assert_array_equal(made, case.output)


def test_the_barrier_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulation sees a tile that is read before all of it was written."""
    case = _case(CASES["ragged both ways"])
    space = _space(case)
    values = dict(zip(_TILES, (32, 16, 1, 1, 64), strict=True))
    function = scheduled_function(space.apply(space.candidate(values, "test")))
    real, made = source.translated, np.zeros(case.output.shape, "float16")
    monkeypatch.setattr(source, "translated", lambda text: real(text).replace("__syncthreads();", ""))
    emulate(function, [*case.inputs, made], gpu_target(), tmp_path)
    assert not np.array_equal(made, case.output)


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_a_layout_keeps_all_warps_of_a_tile_apart(size: int) -> None:
    """What the layout is chosen by is the first warp; the others are looked at here."""
    sides, vectors = (4, 16, 64), [2**n for n in range((16 // size).bit_length())]
    found = 0
    for rows, columns, fetch, vector in itertools.product(sides, sides, vectors, vectors):
        if fetch > rows or vector > columns:
            continue
        layout = layout_of(rows, columns, fetch, vector, size)
        if layout is None:
            continue
        found += 1
        places = {layout.place(row, column) for row in range(rows) for column in range(columns)}
        assert places == set(range(rows * columns))
        for part in range(0, fetch, layout.store):
            stores = range(part, rows * columns, fetch)
            starts = tuple(layout.place(n % rows, n // rows) * size for n in stores)
            assert apart(starts, layout.store * size)
        for part in range(vector):
            loads = range(part, rows * columns, vector)
            assert apart(tuple(layout.place(n // columns, n % columns) * size for n in loads), size)
    assert found > 10


def _every(space: DesignSpace) -> list[dict[str, int]]:
    names = [one.name for one in space.decisions]
    products = itertools.product(*(one.choices for one in space.decisions))
    return [values for one in products if space.legal(values := dict(zip(names, one, strict=True)))]


@pytest.mark.parametrize(
    ("turned", "least"),
    [
        (Turned((1, 2100, 84), (0, 2, 1), ()), 2.0),
        (Turned((1, 32, 32, 96), (0, 3, 1, 2), ()), 2.0),
        (Turned((1, 96, 256, 4), (0, 3, 2, 1), ()), 2.0),
        (Turned((1, 1024, 3), (0, 2, 1), (), "float32", "float32"), 1.0),
    ],
    ids=["detections", "image", "short rows", "three columns"],
)
def test_tiles_are_chosen_where_they_pay(turned: Turned, least: float) -> None:
    """By the estimate, which Gensor's construction reaches."""
    space = _space(_case(turned))
    (found,) = Gensor().propose(space, DeviceProfile("gpu", _BOARD, _BOARD.hardware, 1), (), 1, seed=0)
    every = _every(space)
    best = min(every, key=space.estimate_s)
    flat = min(space.estimate_s(values) for values in every if not values["rows"])
    assert space.estimate_s(best) / found.estimate_s >= 0.995
    assert flat / space.estimate_s(best) >= least
    assert (best["rows"] > 0) == (flat > space.estimate_s(best))


def test_a_small_matrix_is_not_turned_in_tiles() -> None:
    space = _space(_case(Turned((24, 20), (1, 0), ())))
    assert not min(_every(space), key=space.estimate_s)["rows"]


def test_neighbours_that_stay_neighbours_have_no_tiles() -> None:
    for function in (
        fn.addition(1, 8, 8, 16),
        fn.transpose((4, 6, 16), (1, 0, 2)),
        _case(Turned((1, 1, 64), (0, 2, 1), ())).function,
    ):
        space = space_for(fn.task(function), _BOARD.hardware)
        assert {one.name for one in space.decisions} == {"threads", "vector"}


def test_what_a_condition_decides_has_no_tiles() -> None:
    a = te.placeholder((40, 30), "float16", "A")
    zero = tirx.const(0.0, "float16")
    padded = te.compute((30, 44), lambda i, j: tirx.if_then_else(j < 40, a[j, i], zero), "padded")
    space = space_for(fn.task(te.create_prim_func([a, padded])), _BOARD.hardware)
    assert {one.name for one in space.decisions} == {"threads", "vector"}
