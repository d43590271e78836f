"""Attention over a cache beside NumPy, token by token and in chunks."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from host.errors import LoweringError
from host.gensor import Gensor
from host.lowering import lower
from host.lowering.decoding.blocked import block_positions
from host.model import DeviceProfile, LoweredModel
from host.schedules import DesignSpace, scheduled_function, space_for
from host.schedules.cached_attention import extents_of
from host.schedules.cpu.cached_attention.cost import shared_from
from targets import Board
from tests.decoders.operations import cached_attention
from tests.scheduling.repetitions import in_turn
from tests.unit.lowering.harness import board, hardly_optimised, imported


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
    rounded: bool = False

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
        rounded = {"rounded": True} if self.rounded else {}
        return {"scale": self.size**-0.5, "window": self.window, "cap": self.cap, **rounded}


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


# Seconds in which threads are woken: all positions are shared, or those of a long text.
ALWAYS, ANY_TIME = 1e-12, 1e-6


def program(
    model: LoweredModel, threads: int, splits: int = 1, launch_s: float = ALWAYS, optimised: bool = False
) -> Any:
    """The function as its rule makes it, callable.

    Args:
        model: of one attention.
        threads: that share a call.
        splits: parts of the positions.
        launch_s: in which the model of the processor says that threads are woken.
        optimised: by LLVM as for a bundle.
    """
    [task] = model.tasks
    space = space_for(task, replace(board().hardware, parallel_launch_s=launch_s), threads)
    assert space.rule.name == "cached_attention"
    values = {"splits": splits, "parallel": threads} if threads > 1 else {}
    made = scheduled_function(space.apply(space.candidate(values, "test")))
    target = model.target if optimised else hardly_optimised(model.target)
    return tvm.compile(tvm.IRModule({"main": made.with_attr("global_symbol", "main")}), target=target)["main"]


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
    # A tile of one row.
    Case(37, 1, 1, 16, 160),
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
    # Heads of more vectors than are added up together, and numbers of parts that are no power of two.
    (Case(1, 2, 1, 80, 160), 5, 5),
    (Case(2, 2, 1, 24, 128, kept="float16"), 7, 7),
]


def follow(case: Case, call: Any, empty: float = 1e3, tolerance: float = 0.0) -> None:
    """Compares each call of a text that fills the cache, row by row, with NumPy: results and what is kept.

    Args:
        case: of the attention.
        call: the compiled function.
        empty: what caches of floats hold where nothing was written.
        tolerance: of results, as part of the largest; 0 for that of the type of the caches.
    """
    draw = np.random.default_rng(5)
    kept = [np.full(shape, 100 if case.kept == "int8" else empty, dtype) for shape, dtype in case.shapes[4:]]
    ours = [tvm.runtime.tensor(one) for one in kept]
    exact = [one.astype("float32") for one in kept]
    for start in range(0, case.capacity - case.rows + 1, case.rows):
        given = [draw.normal(size=shape).astype(dtype) for shape, dtype in case.shapes[:3]]
        position = np.array([start], np.int32)
        query, key, value = given
        wanted = cached_attention(query, key, value, position, *exact, case.options)
        made = tvm.runtime.tensor(np.full_like(wanted, np.nan))
        call(*(tvm.runtime.tensor(one) for one in (*given, position)), *ours, made)
        allowed = tolerance or (3e-3 if case.kept == "float16" else 2e-5)
        np.testing.assert_allclose(made.numpy(), wanted, atol=allowed * np.abs(wanted).max())
    for found, one in zip(ours, exact, strict=True):
        np.testing.assert_allclose(found.numpy().astype("float32"), one, rtol=1e-3, atol=1e-6)


@in_turn("case, threads", CASES, [1, 2], ids=str)
def test_each_row_attends_to_what_stands_before_it(case: Case, threads: int) -> None:
    follow(case, program(lowered(case), threads))


@pytest.mark.parametrize(("case", "threads", "splits"), SHARED, ids=str)
def test_threads_share_the_positions_of_a_head(case: Case, threads: int, splits: int) -> None:
    follow(case, program(lowered(case), threads, splits))


# Tiles of one token and of several, of more sums than registers hold, of windows, and of heads of keys that
# many heads of queries share.
FEW = [
    (Case(4, 4, 4, 32, 96), 1, 1),
    (Case(4, 14, 2, 64, 112, kept="float16"), 1, 1),
    (Case(3, 6, 3, 24, 64, window=9), 1, 1),
    (Case(4, 8, 1, 64, 96, kept="int8"), 1, 1),
    (Case(4, 16, 1, 32, 160, window=40, kept="float16", lanes=8), 2, 2),
    (Case(4, 3, 1, 40, 160, cap=0.5), 5, 3),
    (Case(4, 40, 1, 16, 96), 2, 2),
]


@pytest.mark.parametrize(("case", "threads", "splits"), FEW, ids=str)
def test_rows_of_few_tokens_have_the_bits_of_steps(case: Case, threads: int, splits: int) -> None:
    """Whatever else is computed in the same call, and behind drafts that turned out wrong."""
    draw, step = np.random.default_rng(7), replace(case, rows=1)
    query, key, value = (
        draw.normal(size=(case.capacity, *shape[1:])).astype(dtype) for shape, dtype in case.shapes[:3]
    )

    def caller(own: Case) -> Any:
        call = program(lowered(own), threads, splits, optimised=True)
        kept = [tvm.runtime.tensor(np.zeros(shape, dtype)) for shape, dtype in own.shapes[4:]]

        def called(start: int) -> np.ndarray:
            rows = slice(start, start + own.rows)
            given = (query[rows], key[rows], value[rows], np.array([start], np.int32))
            made = tvm.runtime.tensor(np.zeros(own.shapes[0][0], "float32"))
            call(*map(tvm.runtime.tensor, given), *kept, made)
            return np.asarray(made.numpy())

        return called

    steps, rows = caller(step), caller(case)
    by_steps = np.concatenate([steps(place) for place in range(case.capacity)])
    for start in range(0, case.capacity - case.rows + 1, case.rows - 1):
        np.testing.assert_array_equal(rows(start), by_steps[start : start + case.rows])


def space_of(case: Case, threads: int) -> DesignSpace:
    [task] = lowered(case).tasks
    return space_for(task, board().hardware, threads)


# A step, and a chunk that reads blocks and adds up its rows by all threads.
@pytest.mark.parametrize("case", [Case(1, 8, 1, 128, 1024), Case(32, 2, 1, 64, 576, window=300)], ids=str)
def test_few_positions_are_left_to_the_calling_thread(case: Case) -> None:
    """Results are the same on both sides of the number of positions, which the program compares with."""
    [task] = lowered(case).tasks
    hardware = replace(board().hardware, parallel_launch_s=ANY_TIME)
    space = space_for(task, hardware, 2)
    fewest = shared_from(extents_of(space.workload, hardware), hardware, 2)
    # With half the time to wake them, half the positions are enough.
    sooner = replace(hardware, parallel_launch_s=ANY_TIME / 2)
    assert shared_from(extents_of(space.workload, sooner), sooner, 2) in (fewest // 2, (fewest + 1) // 2)
    assert 16 < fewest < (case.window or case.capacity)
    text = scheduled_function(space.apply(space.candidate({"splits": 2, "parallel": 2}, "test"))).script()
    before, _, behind = text.partition("else:")
    assert f"< {fewest}:" in before and "T.parallel" not in before
    assert behind.count("T.parallel") == (2 if case.rows > 1 else 1)
    follow(case, program(lowered(case), 2, 2, ANY_TIME))


def test_there_are_no_parts_where_no_text_is_long_enough() -> None:
    """Neither by the capacity nor by the window."""
    for case in (Case(1, 2, 1, 64, 64), Case(1, 2, 1, 64, 32768, window=32)):
        assert {one.name: one.choices for one in space_of(case, 2).decisions}["splits"] == (1,)


def test_the_estimate_counts_the_positions_of_the_window() -> None:
    values = {"splits": 1, "parallel": 1}
    wide, narrow = (space_of(Case(1, 8, 1, 64, 32768, window=n), 8).estimate_s(values) for n in (0, 512))
    assert narrow < 0.05 * wide


def test_more_parts_than_threads_are_illegal() -> None:
    space = space_of(Case(1, 8, 1, 64, 4096), 4)
    assert space.legal({"splits": 4, "parallel": 4}) and space.legal({"splits": 2, "parallel": 4})
    assert not space.legal({"splits": 4, "parallel": 2}) and not space.legal({"splits": 2, "parallel": 1})


def test_sums_of_parts_are_bounded() -> None:
    """71 heads of 64 rows take 1.1 MiB for each part."""
    (splits, _) = space_of(Case(64, 71, 1, 64, 4096), 16).decisions
    assert splits.name == "splits" and splits.choices[-1] == 7


@pytest.mark.parametrize("size", [16, 64, 128])
def test_a_short_prompt_has_two_parts_with_positions(size: int) -> None:
    """A device compares prompts of 96 positions: these are more than one block of a program with parts."""
    hardware = board().hardware
    space = space_of(Case(64, 8, 1, size, 4096), 2)
    assert block_positions(extents_of(space.workload, hardware)) < 96


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


@pytest.mark.parametrize("case", [Case(2, 2, 1, 16, 32), Case(36, 2, 1, 16, 128)], ids=str)
@pytest.mark.parametrize("splits", [1, 2])
@pytest.mark.parametrize("position", [-5, 1 << 30])
def test_a_position_that_is_none_writes_nothing_outside(position: int, splits: int, case: Case) -> None:
    """Every byte around the caches is as it was; inside, some place was written."""
    call, draw = program(lowered(case), splits, splits), np.random.default_rng(6)
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
