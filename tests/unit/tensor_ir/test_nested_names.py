"""Functions that follow one another: what their names stand for is stored, and nothing else is."""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import s_tir, te, tirx

from host.build import build_kernel_library
from host.build.kernel import lower_function
from host.lowering.expressions import math
from tests.unit.schedules import functions as fn

SIZE, LANES = 64, 16


def _mish(v: Any) -> Any:
    return v * math.tanh(math.log(math.number(1.0) + math.exp(v)))


def _scheduled(function: Callable[[Any], Any], lanes: int = LANES) -> tirx.PrimFunc:
    x = te.placeholder((SIZE,), "float32", name="x")
    made = te.compute((SIZE,), lambda i: function(x[i]), name="made")
    schedule = s_tir.Schedule(te.create_prim_func([x, made]))
    if lanes > 1:
        [loop] = schedule.get_loops(schedule.get_sblock("made"))
        schedule.vectorize(schedule.split(loop, [None, lanes])[1])
    return schedule.mod["main"]


def _nodes(function: tirx.PrimFunc, kind: Any) -> list[Any]:
    target = tvm.target.Target(fn.board().tvm_target)
    found: list[Any] = []
    for lowered in lower_function(function, "main", target).functions.values():
        tvm_ffi.structural_walk(lowered.body, (kind, found.append))
    return found


@pytest.mark.parametrize("lanes", [1, LANES])
def test_names_of_functions_in_one_another_are_stored(lanes: int, tmp_path: Path) -> None:
    scheduled = _scheduled(_mish, lanes)
    assert not _nodes(scheduled, tirx.Let)
    buffers = [one.buffer for one in _nodes(scheduled, tirx.AllocBuffer)]
    assert len(buffers) >= 8
    assert {int(one.shape[0]) for one in buffers} == {lanes}
    x = np.linspace(-60, 60, SIZE, dtype=np.float32)
    x[:4] = np.nan, np.inf, -0.0, 1e-30
    # As models are built: what TVM itself makes of the function has no names stored.
    here = tvm.target.Target({"kind": "llvm", "mtriple": f"{platform.machine()}-linux-gnu", "num-cores": 2})
    library = build_kernel_library({"kernel": scheduled}, tmp_path / "kernel.so", here)
    result = tvm.runtime.tensor(np.full(x.shape, np.nan, np.float32))
    tvm.runtime.load_module(str(library))["kernel"](tvm.runtime.tensor(x), result)
    made = result.numpy()
    with np.errstate(over="ignore"):
        wanted = x * np.tanh(np.log1p(np.exp(x.astype(np.float64))))
    wanted[1] = np.inf
    np.testing.assert_allclose(made[np.abs(x) < 15], wanted[np.abs(x) < 15], rtol=2e-5, atol=3e-6)
    assert np.isnan(made[0]) and made[1] == np.inf


@pytest.mark.parametrize("function", [math.tanh, math.erf, math.exp, math.gelu])
def test_names_of_one_function_stay(function: Callable[[Any], Any]) -> None:
    scheduled = _scheduled(function)
    assert _nodes(scheduled, tirx.Let)
    assert not _nodes(scheduled, tirx.AllocBuffer)


def test_names_where_only_one_side_is_computed_stay() -> None:
    scheduled = _scheduled(lambda v: tirx.if_then_else(v > math.number(0.0), _mish(v), v), lanes=1)
    assert not _nodes(scheduled, tirx.AllocBuffer)
