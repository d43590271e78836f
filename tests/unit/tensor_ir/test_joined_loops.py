"""Parts of a partitioned loop as one loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import tirx
from tvm.script import tirx as T

from host.build import build_kernel_library
from host.build.kernel import lower_function
from host.schedules import scheduled_function, space_for
from host.tensor_ir.joined_loops import with_joined_loops
from tests.unit.schedules import functions as fn

BANDS, ROWS = 2, 7


def bands(last: int) -> tirx.PrimFunc:
    """Writes 1, 2 and 3 where the parts of a loop over rows are; the last has `7 p - last` iterations."""
    out = tirx.decl_buffer((BANDS * ROWS,), "int32", "out")
    p = tirx.Var("p", "int32")
    ends = [tirx.max(1 - p, 0), tirx.min(13 - p * ROWS, ROWS)]
    sizes = [ends[0], ends[1] - ends[0], p * ROWS - last]
    parts = []
    for number, (begin, size) in enumerate(zip([0, *ends], sizes, strict=True)):
        i = tirx.Var("i", "int32")
        store = tirx.BufferStore(out, tirx.IntImm("int32", number + 1), [p * ROWS + (i + begin)])
        parts.append(tirx.For(i, tirx.IntImm("int32", 0), size, tirx.ForKind.SERIAL, store))
    zero, extent = tirx.IntImm("int32", 0), tirx.IntImm("int32", BANDS)
    body = tirx.For(p, zero, extent, tirx.ForKind.SERIAL, tirx.SeqStmt(parts))
    function = tirx.PrimFunc([out], body)
    return function.with_attr("tirx.noalias", True)


def loops(node: Any) -> list[tirx.For]:
    found: list[tirx.For] = []
    tvm_ffi.structural_walk(node, (tirx.For, found.append))
    return found


def test_parts_with_as_many_iterations_in_every_band_become_one_loop(tmp_path: Path) -> None:
    function = bands(last=6)
    joined = function.with_body(with_joined_loops(function.body))
    assert sorted(int(loop.extent.value) for loop in loops(joined.body)) == [BANDS, ROWS]
    path = build_kernel_library({"k": joined}, tmp_path / "k.so", tvm.target.Target("llvm"))
    made = tvm.runtime.tensor(np.zeros(BANDS * ROWS, np.int32))
    tvm.runtime.load_module(str(path))["k"](made)
    np.testing.assert_array_equal(made.numpy(), [1, *[2] * (2 * (ROWS - 1)), 3])


def test_parts_with_other_numbers_of_iterations_stay() -> None:
    body = bands(last=5).body
    assert len(loops(with_joined_loops(body))) == len(loops(body)) == 4


@pytest.mark.parametrize("stride", [1, 2])
def test_loops_of_a_depthwise_convolution_in_bands_have_constant_bounds(stride: int) -> None:
    board = fn.board(cores=2)
    space = space_for(fn.task(fn.depthwise(14, 32, stride)), board.hardware, 2)
    fixed = {"pad": 1, "rows2": 1, "block2": 1, "vectors": 1, "panel": 1, "parallel": 2}
    rest = {d.name: d.choices[0] for d in space.decisions if d.name not in fixed}
    function = scheduled_function(space.apply(space.candidate(fixed | rest, "gensor")))
    target = tvm.target.Target(board.tvm_target)
    module = lower_function(function, "kernel", target)
    extents = [loop.extent for one in module.functions.values() for loop in loops(one.body)]
    assert len(extents) > 3
    assert all(isinstance(extent, tirx.IntImm) for extent in extents)


@T.prim_func(s_tir=True)
def picked(
    x: T.Buffer((T.int64(14),), "float32"),
    places: T.Buffer((T.int64(14),), "int64"),
    y: T.Buffer((T.int64(14),), "float32"),
) -> None:
    T.func_attr({"tirx.noalias": True})
    for i_0 in T.serial(T.int64(4), annotations={"pragma_loop_partition_hint": 1}):
        for i_1 in T.vectorized(T.int64(4)):
            with T.sblock("y"):
                i = T.axis.spatial(T.int64(14), i_0 * T.int64(4) + i_1)
                T.where(i_0 * T.int64(4) + i_1 < T.int64(14))
                y[i] = x[T.max(T.min(places[i] + i, T.int64(13)), T.int64(0))]


def test_the_last_part_of_a_loop_of_64_bits_compiles(tmp_path: Path) -> None:
    """Places that are not known to fit into 32 bits leave the loop in 64, and its last part has one turn."""
    path = build_kernel_library({"k": picked}, tmp_path / "k.so", tvm.target.Target("llvm"))
    x, places = np.arange(14, dtype=np.float32), np.arange(14)[::-1] * 3 - 20
    made = tvm.runtime.tensor(np.zeros(14, np.float32))
    given = map(tvm.runtime.tensor, (x, places.astype(np.int64)))
    tvm.runtime.load_module(str(path))["k"](*given, made)
    np.testing.assert_array_equal(made.numpy(), x[np.clip(places + np.arange(14), 0, 13)])
