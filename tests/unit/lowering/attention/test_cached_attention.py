"""Attention over a cache beside NumPy, token by token and in chunks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from host.errors import LoweringError
from host.lowering import lower
from host.model import LoweredModel
from host.schedules import scheduled_function, space_for
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


def program(model: LoweredModel, threads: int) -> Any:
    """The function as its rule makes it, callable."""
    [task] = model.tasks
    space = space_for(task, board().hardware, threads)
    assert space.rule.name == "cached_attention"
    values = {one.name: one.choices[-1] for one in space.decisions}
    made = scheduled_function(space.apply(space.candidate(values, "test")))
    return tvm.compile(tvm.IRModule({"main": made.with_attr("global_symbol", "main")}), target=model.target)[
        "main"
    ]


CASES = [
    Case(1, 4, 4, 16, 64),
    Case(1, 14, 2, 64, 64),
    Case(3, 6, 3, 24, 48),
    Case(8, 4, 1, 32, 64, lanes=8),
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


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_row_attends_to_what_stands_before_it(case: Case, threads: int) -> None:
    call, draw = program(lowered(case), threads), np.random.default_rng(5)
    kept = [np.full(shape, 100 if case.kept == "int8" else 1e3, dtype) for shape, dtype in case.shapes[4:]]
    ours = [tvm.runtime.tensor(one) for one in kept]
    exact = [one.astype("float32") for one in kept]
    for start in range(0, case.capacity - case.rows + 1, case.rows):
        given = [draw.normal(size=shape).astype(dtype) for shape, dtype in case.shapes[:3]]
        position = np.array([start], np.int32)
        query, key, value = given
        wanted = cached_attention(query, key, value, position, *exact, case.options)
        made = tvm.runtime.tensor(np.zeros_like(wanted))
        call(*(tvm.runtime.tensor(one) for one in (*given, position)), *ours, made)
        tolerance = 3e-3 if case.kept == "float16" else 2e-5
        np.testing.assert_allclose(made.numpy(), wanted, atol=tolerance * np.abs(wanted).max())


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
