"""Numbers of bfloat16 as x86's instructions make and multiply them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import s_tir, te, tirx

from host.build.kernel import lower_function
from host.errors import BuildError
from host.tensor_ir.bfloat16 import as_bits, dot_function, has_bfloat16
from tests.unit.schedules.cpu import bfloat16_cases as cases

_SMALLEST_NORMAL = float(ml_dtypes.finfo(ml_dtypes.bfloat16).smallest_normal)
EVERY = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16)
SINGLE = (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32)


def floats() -> np.ndarray:
    """All normal numbers of bfloat16, the middles between them, their neighbours, and any bits."""
    exact = np.sort(SINGLE[np.isfinite(SINGLE)])
    middles = (exact[1:].astype(np.float64) + exact[:-1]) / 2
    ends = np.array([3.3961e38, 3.4028234e38, -3.4028234e38, np.inf, -np.inf, 0.0, -0.0])
    with np.errstate(over="ignore"):
        known = np.concatenate([exact, middles, ends]).astype(np.float32)
        near = [np.nextafter(known, np.float32(end)) for end in (np.inf, -np.inf)]
    drawn = np.random.default_rng(0).integers(0, 1 << 32, 1 << 16, dtype=np.uint32).view(np.float32)
    found = np.concatenate([known, *near, drawn])
    found = found[np.isnan(found) | (np.abs(found) >= _SMALLEST_NORMAL) | (found == 0.0)]
    return np.concatenate([found, np.zeros(-found.size % 48, np.float32)])


def elementwise(
    size: int, source: str, kind: str, lanes: int, change: Callable[[Any], Any] = lambda value: value
) -> tirx.PrimFunc:
    """A function that changes each element and makes it another type, in vectors of `lanes`."""
    data = te.placeholder((size,), source, "data")
    result = te.compute(data.shape, lambda i: change(data[i]).astype(kind), "result")
    schedule = s_tir.Schedule(te.create_prim_func([data, result]))
    if lanes > 1:
        [loop] = schedule.get_loops(schedule.get_sblock("result"))
        schedule.vectorize(schedule.split(loop, [None, lanes])[1])
    return schedule.mod["main"]


@pytest.mark.parametrize("lanes", [1, 8, 16])
def test_floats_become_the_nearest_number(lanes: int) -> None:
    values = floats()
    function = elementwise(values.size, "float32", "bfloat16", lanes)
    made = cases.run(function, [values], values.shape, "bfloat16")
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = values.astype(ml_dtypes.bfloat16)
    bits = made.view(np.uint16)
    same = np.where(np.isnan(values), bits & 0x7FFF > 0x7F80, bits == wanted.view(np.uint16))
    assert same.all(), values[~same][:5]


@pytest.mark.parametrize("lanes", [1, 16])
def test_every_number_becomes_its_float(lanes: int) -> None:
    made = cases.run(elementwise(EVERY.size, "bfloat16", "float32", lanes), [EVERY], EVERY.shape)
    np.testing.assert_array_equal(made.view(np.uint32), SINGLE.view(np.uint32))


def test_conversions_are_one_instruction() -> None:
    function = elementwise(
        160, "bfloat16", "bfloat16", 16, lambda value: value.astype("float32") * np.float32(3)
    )
    code = cases.assembly(function)
    assert "vcvtneps2bf16" in code and "vpmovzxwd" in code
    assert "vpmovdw" not in code, "rounding by integers ends with this"


def test_a_buffer_of_the_functions_own_has_16_bits_an_element() -> None:
    data = te.placeholder((1024,), "bfloat16", "data")
    fill = tirx.const(2.5, "bfloat16")
    moved = te.compute((1030,), lambda i: tirx.if_then_else(i < 1024, data[i], fill), "moved")
    result = te.compute((1024,), lambda i: moved[i + 6].astype("float32"), "result")
    function = te.create_prim_func([data, result])
    text = lower_function(function, "kernel", cases.target()).script()
    assert '1030,), "uint16"' in text and "bfloat16" not in text
    values = np.random.default_rng(0).normal(size=1024).astype(ml_dtypes.bfloat16)
    made = cases.run(function, [values], (1024,))
    wanted = np.concatenate([values[6:], np.full(6, 2.5)]).astype(np.float32)
    np.testing.assert_array_equal(made, wanted)


def test_arithmetic_that_nothing_rounds_is_refused() -> None:
    function = elementwise(16, "bfloat16", "bfloat16", 1, lambda value: value + value)
    with pytest.raises(BuildError, match="arithmetic in bfloat16 is not compiled"):
        as_bits(function)


def test_functions_without_such_numbers_are_left_as_they_are() -> None:
    function = elementwise(16, "float32", "float32", 16)
    assert as_bits(function).same_as(function)
    assert not has_bfloat16(tvm.target.Target("llvm")) and has_bfloat16(cases.target())
    assert dot_function(16) != dot_function(8)
