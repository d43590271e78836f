"""Conversions of halves by integer arithmetic: every half, and floats that are hard to round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te

from host.build import target_for
from host.build.half_precision import without_half_conversions
from host.build.kernel import lower_function
from targets import board_for, declared

HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16)


def floats() -> np.ndarray:
    """All halves, the middles between them, their neighbours, and any bits."""
    exact = HALVES[np.isfinite(HALVES)].astype(np.float32)
    ordered = np.sort(exact)
    middles = (ordered[1:] + ordered[:-1]) / 2
    ends = np.array([65519.996, 65520.0, 1e30, -1e30, 2.0**-25, 2.0**-26, 1e-40], np.float32)
    known = np.concatenate([exact, middles, ends])
    near = [np.nextafter(known, np.float32(end)) for end in (np.inf, -np.inf)]
    drawn = np.random.default_rng(0).integers(0, 1 << 32, 1 << 16, dtype=np.uint32).view(np.float32)
    found = np.concatenate([known, *near, drawn])
    return np.concatenate([found, np.zeros(-found.size % 8, np.float32)])


def conversions(function: tvm.tirx.PrimFunc) -> list[str]:
    """Casts to halves and from halves."""
    found: list[tvm.tirx.Cast] = []
    tvm_ffi.structural_walk(function.body, (tvm.tirx.Cast, found.append))
    return [str(one) for one in found if "float16" in f"{one.ty} {one.value.ty}"]


def converted(
    values: np.ndarray, kind: str, lanes: int = 8, change: Callable[[Any], Any] = lambda value: value
) -> np.ndarray:
    """Values, changed and of another type, by a function whose halves are converted by integers."""
    data = te.placeholder((values.size,), str(values.dtype), "data")
    result = te.compute(data.shape, lambda i: change(data[i]).astype(kind), "result")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([data, result]))
    [loop] = schedule.get_loops(schedule.get_sblock("result"))
    if lanes > 1:
        schedule.vectorize(schedule.split(loop, [None, lanes])[1])
    target = tvm.target.Target("llvm")
    lower, finalize, _ = tvm.tirx.get_tir_pipeline("default")
    bound = tvm.tirx.transform.BindTarget(target.with_host(target))
    module = lower(bound(tvm.IRModule({"main": schedule.mod["main"].with_attr("global_symbol", "main")})))
    functions = {
        name: function.with_body(without_half_conversions(function.body))
        for name, function in module.functions.items()
    }
    assert not any(map(conversions, functions.values()))
    built = tvm.get_global_func("target.build.llvm")(finalize()(tvm.IRModule(functions)), target)
    made = tvm.runtime.tensor(np.zeros(values.shape, kind))
    built["main"](tvm.runtime.tensor(values), made)
    return made.numpy()


@pytest.mark.parametrize("lanes", [1, 8])
def test_every_half_becomes_its_float(lanes: int) -> None:
    made = converted(HALVES, "float32", lanes)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(made, HALVES.astype(np.float32))
    assert (np.signbit(made) == np.signbit(HALVES)).all()


@pytest.mark.parametrize("lanes", [1, 8])
def test_floats_become_the_nearest_half(lanes: int) -> None:
    values = floats()
    made = converted(values, "float16", lanes)
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = values.astype(np.float16)
    np.testing.assert_array_equal(made, wanted)
    assert (np.signbit(made) == np.signbit(wanted)).all()


def test_other_types_go_by_floats() -> None:
    np.testing.assert_array_equal(converted(HALVES[: 31 << 10], "int32"), HALVES[: 31 << 10].astype(np.int32))
    numbers = np.arange(-4096, 4096, dtype=np.int32)
    np.testing.assert_array_equal(converted(numbers, "float16"), numbers.astype(np.float16))


@pytest.mark.parametrize(
    ("name", "has"),
    [("rv64gc", False), ("rv64gcv", False), ("visionfive2", False), ("raspberry_pi_4", True)],
)
def test_kernels_convert_where_the_processor_cannot(name: str, has: bool) -> None:
    board = board_for(declared()[name])
    assert board is not None
    target = target_for(board)
    data = te.placeholder((64,), "float16", "data")
    total = te.compute((64,), lambda i: data[i].astype("float32") * 2.0, "total")
    result = te.compute((64,), lambda i: total[i].astype("float16"), "result")
    module = lower_function(te.create_prim_func([data, result]), "sums", target)
    assert any(map(conversions, module.functions.values())) == has


def test_arithmetic_of_halves_is_of_floats() -> None:
    with np.errstate(over="ignore"):
        values = np.random.default_rng(1).normal(size=64).astype(np.float16)
        wanted = (values + values * values).astype(np.float32)
    made = converted(values, "float32", change=lambda value: value + value * value)
    np.testing.assert_array_equal(made, wanted)
