"""Attention over a cache beside NumPy, token by token and in chunks."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from host.errors import LoweringError
from host.gensor import Gensor
from host.lowering import lower
from host.model import DeviceProfile, LoweredModel
from host.schedules import DesignSpace, scheduled_function, space_for
from targets import Board
from tests.decoders.operations import cached_attention
from tests.unit.lowering.harness import board, imported


@dataclass(frozen=True)
class Case:
    """Extents of an attention."""

    rows: int
    heads: int
    key_heads: int
    size: int
    capacity: int
    window: int = 0
    kept: str = "float32"
    lanes: int = 16
    cap: float = 0.0

    @property
    def shapes(self) -> list[tuple[tuple[int, ...], str]]:
        """Of the arguments."""
        small = (self.rows, self.key_heads, self.size)
        return [
            ((self.rows, self.heads, self.size), "float32"),
            (small, "float32"),
            (small, "float32"),
            ((1,), "int32"),
            *([((self.key_heads, self.capacity // 16, 16), "float16")] * (2 if self.kept == "int8" else 0)),
            ((self.key_heads, self.capacity // 16, self.size, 16), self.kept),
            ((self.key_heads, self.capacity, self.size), self.kept),
        ]

    @property
    def options(self) -> dict[str, Any]:
        """Of the operation."""
        return {"scale": self.size**-0.5, "window": self.window, "cap": self.cap}


def lowered(case: Case, on: Board | None = None) -> LoweredModel:
    builder = relax.BlockBuilder()
    variables = [relax.Var(f"input{n}", relax.TensorType(*kind)) for n, kind in enumerate(case.shapes)]
    text = tvm.ir.StringImm(json.dumps(case.options))
    with builder.function("main", variables):
        with builder.dataflow():
            result = relax.TensorType(case.shapes[0][0], "float32")
            call = relax.call_dps_packed("edgetlm.cached_attention", relax.Tuple([*variables, text]), result)
            made = builder.emit_output(builder.emit(call))
        builder.emit_func_output(made)
    return lower(imported(builder.get()), on or board(case.lanes))


def program(model: LoweredModel, threads: int, splits: int = 1) -> Any:
    """The function as its rule makes it, callable.

    Args:
        model: of one attention.
        threads: that share a call.
        splits: parts of the positions.
    """
    [task] = model.tasks
    space = space_for(task, board().hardware, threads)
    assert space.rule.name == "cached_attention"
    values = {"splits": splits, "parallel": threads} if threads > 1 else {}
    made = scheduled_function(space.apply(space.candidate(values, "test")))
    return tvm.compile(tvm.IRModule({"main": made.with_attr("global_symbol", "main")}), target=model.target)[
        "main"
    ]


CASES = [
    Case(1, 4, 4, 16, 64),
    Case(1, 14, 2, 64, 64),
    Case(3, 6, 3, 24, 48),
    Case(8, 4, 1, 32, 256, lanes=8),
    Case(5, 6, 2, 20, 64, window=7, lanes=4),
    Case(1, 4, 2, 32, 64, window=20),
    Case(4, 4, 2, 32, 64, kept="float16"),
    Case(1, 4, 2, 32, 64, window=20, cap=0.5),
    Case(5, 6, 2, 20, 64, kept="float16", lanes=8, cap=0.75),
    Case(1, 14, 2, 64, 64, kept="int8"),
    Case(5, 6, 2, 20, 64, window=7, kept="int8", lanes=8, cap=0.75),
    Case(24, 4, 2, 40, 288, kept="int8"),
    # So many rows that the cache is read in blocks, of 128 and of 48 positions.
    Case(24, 4, 2, 40, 288, kept="float16"),
    Case(36, 2, 2, 160, 144, window=50, lanes=8, cap=0.5),
    Case(33, 3, 1, 24, 272, window=7, lanes=4),
]


# A case, threads, and parts of the positions. Rows of one tile and of several; windows that begin and end in
# different parts; caches that are read in blocks; parts that are empty while the text is short.
SHARED = [
    *((case, 2, 2) for case in CASES),
    (Case(1, 2, 1, 16, 256), 8, 8),
    (Case(1, 14, 2, 64, 144, kept="int8"), 4, 4),
    (Case(4, 9, 3, 20, 160, window=37, kept="float16", lanes=8), 4, 3),
    (Case(2, 2, 1, 32, 112, cap=0.5), 8, 6),
    (Case(24, 4, 2, 40, 512, kept="int8"), 4, 4),
    (Case(40, 2, 1, 72, 720, window=300, kept="float16", lanes=8), 4, 3),
]


def follow(case: Case, call: Any) -> None:
    """Compares each call of a text that fills the cache, row by row, with NumPy: results and what is kept."""
    draw = np.random.default_rng(5)
    kept = [np.full(shape, 100 if case.kept == "int8" else 1e3, dtype) for shape, dtype in case.shapes[4:]]
    ours = [tvm.runtime.tensor(one) for one in kept]
    exact = [one.astype("float32") for one in kept]
    for start in range(0, case.capacity - case.rows + 1, case.rows):
        given = [draw.normal(size=shape).astype(dtype) for shape, dtype in case.shapes[:3]]
        position = np.array([start], np.int32)
        query, key, value = given
        wanted = cached_attention(query, key, value, position, *exact, case.options)
        made = tvm.runtime.tensor(np.full_like(wanted, np.nan))
        call(*(tvm.runtime.tensor(one) for one in (*given, position)), *ours, made)
        tolerance = 3e-3 if case.kept == "float16" else 2e-5
        np.testing.assert_allclose(made.numpy(), wanted, atol=tolerance * np.abs(wanted).max())
    for found, one in zip(ours, exact, strict=True):
        np.testing.assert_allclose(found.numpy().astype("float32"), one, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_row_attends_to_what_stands_before_it(case: Case, threads: int) -> None:
    follow(case, program(lowered(case), threads))


@pytest.mark.parametrize(("case", "threads", "splits"), SHARED, ids=str)
def test_threads_share_the_positions_of_a_head(case: Case, threads: int, splits: int) -> None:
    follow(case, program(lowered(case), threads, splits))


def space_of(case: Case, threads: int) -> DesignSpace:
    [task] = lowered(case).tasks
    return space_for(task, board().hardware, threads)


def test_one_thread_has_nothing_to_decide() -> None:
    """Neither has a cache of one block, which no threads can share."""
    assert space_of(Case(1, 4, 1, 64, 4096), 1).decisions == ()
    assert [one.choices for one in space_of(Case(1, 4, 1, 64, 16), 2).decisions] == [(1,), (1, 2)]


# Heads of queries and of keys, places, threads, and what the estimate takes: parts, and threads.
PROPOSED = [
    # Heads of keys are enough for the threads.
    (16, 8, 4096, 4, (1, 4)),
    (14, 2, 4096, 2, (1, 2)),
    # They are not: as many parts as give each thread one.
    (14, 2, 4096, 4, (2, 4)),
    (14, 2, 4096, 8, (4, 8)),
    (8, 1, 4096, 2, (2, 2)),
    # Three heads are not shared evenly by two threads, six halves of heads are.
    (9, 3, 4096, 2, (2, 2)),
    # A text so short that waking another thread takes longer.
    (2, 1, 32, 2, (1, 1)),
]


@pytest.mark.parametrize(("heads", "key_heads", "capacity", "threads", "wanted"), PROPOSED)
def test_as_many_parts_are_proposed_as_keep_all_threads_busy(
    heads: int, key_heads: int, capacity: int, threads: int, wanted: tuple[int, int]
) -> None:
    space = space_of(Case(1, heads, key_heads, 64, capacity), threads)
    on = board()
    profile = DeviceProfile("test", on, on.hardware, threads)
    (made,) = Gensor().propose(space, profile, (), 1, seed=0)
    assert dict(made.decisions) == dict(zip(("splits", "parallel"), wanted, strict=True))
    choices = itertools.product(*(one.choices for one in space.decisions))
    every = [dict(zip(("splits", "parallel"), one, strict=True)) for one in choices]
    best = min(space.estimate_s(values) for values in every if space.legal(values))
    assert space.estimate_s(dict(made.decisions)) == best


@pytest.mark.parametrize("position", [-5, 1 << 30])
def test_a_position_that_is_none_writes_nothing_outside(position: int) -> None:
    """Every byte around the caches is as it was; inside, some place was written."""
    case = Case(2, 2, 1, 16, 32)
    call, draw = program(lowered(case), 1), np.random.default_rng(6)
    given = [draw.normal(size=shape).astype(dtype) for shape, dtype in case.shapes[:3]]
    guard = 4096
    large, views = [], []
    for shape, _ in case.shapes[4:]:
        size = int(np.prod(shape))
        whole = np.full(size + 2 * guard, 7.0, "float32")
        # Where tensors of other libraries may begin.
        first = guard - (whole.ctypes.data + 4 * guard) % 64 // 4
        views.append(tvm.runtime.from_dlpack(whole[first : first + size].reshape(shape)))
        large.append((whole, first, first + size))
    made = tvm.runtime.tensor(np.zeros(case.shapes[0][0], "float32"))
    place = tvm.runtime.tensor(np.array([position], np.int32))
    call(*map(tvm.runtime.tensor, given), place, *views, made)
    for whole, first, end in large:
        assert (whole[:first] == 7.0).all() and (whole[end:] == 7.0).all()
        assert (whole != 7.0).any()


def test_caches_that_do_not_fit_are_refused() -> None:
    with pytest.raises(LoweringError, match=r"Attention over a cache of \(2, 40, 16\) does not fit"):
        lowered(Case(1, 4, 2, 16, 40))


def test_rows_of_zeros_and_of_the_largest_numbers_stay_finite_as_bytes() -> None:
    case = Case(2, 2, 1, 16, 32, kept="int8")
    call = program(lowered(case), 1)
    kept = [tvm.runtime.tensor(np.zeros(shape, dtype)) for shape, dtype in case.shapes[4:]]
    rows = np.zeros((2, 1, 16), np.float32)
    rows[1] = 1e30
    made = tvm.runtime.tensor(np.zeros((2, 2, 16), np.float32))
    query = np.full((2, 2, 16), 1e-30, np.float32)
    given = [tvm.runtime.tensor(one) for one in (query, rows, rows, np.zeros(1, np.int32))]
    call(*given, *kept, made)
    assert (made.numpy()[0] == 0).all() and np.isfinite(made.numpy()).all()
    key_scales, _, keys, _ = (one.numpy() for one in kept)
    assert key_scales[0, 0, :3].tolist() == [0, 65504, 0] and keys[0, 0, 0, :3].tolist() == [0, 127, 0]
