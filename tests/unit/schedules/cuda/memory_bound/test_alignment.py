"""Parts of tensors whose rows are no multiples of a vector: a GPU faults at a vector that is not aligned."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tvm import te, tirx

from host.schedules import DesignSpace, scheduled_function, space_for
from tests.cuda_emulator.run import emulate
from tests.unit.schedules import functions as fn
from tests.unit.schedules.cuda import mma_cases as mma
from tests.unit.schedules.cuda.cuda_cases import Case, gpu_board, gpu_target

_GENERATOR = np.random.default_rng(0)


def _drawn(*shape: int, dtype: str = "float32") -> np.ndarray:
    return _GENERATOR.standard_normal(shape).astype(dtype)


def _positive_part(whole: int, first: int, columns: int, dtype: str = "float32") -> Case:
    """ReLU of some columns of each row."""
    a = te.placeholder((6, whole), dtype, "A")
    zero = tirx.const(0.0, dtype)
    made = te.compute((6, columns), lambda i, j: te.max(a[i, first + j], zero), name="relu")
    given = _drawn(6, whole, dtype=dtype)
    return Case(te.create_prim_func([a, made]), (given,), np.maximum(given[:, first : first + columns], 0))


def _through_a_stage(whole: int, first: int, columns: int) -> Case:
    """As `_positive_part`, but the columns are chosen behind a stage that doubles them."""
    a = te.placeholder((6, whole), "float32", "A")
    doubled = te.compute((6, whole), lambda i, j: a[i, j] * tirx.const(2.0, "float32"), name="doubled")
    made = te.compute((6, columns), lambda i, j: te.max(doubled[i, first + j], fn.ZERO), name="relu")
    given = _drawn(6, whole)
    wanted = np.maximum(given[:, first : first + columns] * 2, 0)
    return Case(te.create_prim_func([a, made]), (given,), wanted)


def _dense(whole: int, first: int, more: int) -> Case:
    """A product of some columns of each row, to which some columns of another tensor are added.

    Args:
        whole: columns of the left operand, of which 40 are taken.
        first: of these.
        more: columns of what is added beside those that are.
    """
    a = te.placeholder((23, whole), name="A")
    w = te.placeholder((2, 40, 16), name="W")
    c = te.placeholder((23, 32 + more), name="C")
    k = te.reduce_axis((0, 40), name="k")
    left = te.compute((23, 40), lambda i, j: a[i, first + j], name="left")
    total = te.compute((23, 32), lambda i, j: te.sum(left[i, k] * w[j // 16, k, j % 16], axis=k), name="mm")
    made = te.compute((23, 32), lambda i, j: total[i, j] + c[i, more + j], name="added")
    given, weight, added = _drawn(23, whole), _drawn(2, 40, 16), _drawn(23, 32 + more)
    flat = weight.transpose(1, 0, 2).reshape(40, 32)
    wanted = given[:, first : first + 40] @ flat + added[:, more:]
    return Case(te.create_prim_func([a, w, c, made]), (given, weight, added), wanted)


def _steps(length: int, taps: int) -> Case:
    """A convolution of each channel along its row, which neighbours in memory lie along."""
    a, w = te.placeholder((4, length + taps - 1), name="A"), te.placeholder((4, taps), name="W")
    k = te.reduce_axis((0, taps), name="k")
    made = te.compute((4, length), lambda c, i: te.sum(a[c, i + k] * w[c, k], axis=k), name="conv")
    given, weight = _drawn(4, length + taps - 1), _drawn(4, taps)
    wanted = sum(given[:, tap : tap + length] * weight[:, tap : tap + 1] for tap in range(taps))
    return Case(te.create_prim_func([a, w, made]), (given, weight), np.asarray(wanted))


def _residual_of_halves(more: int) -> Case:
    """A product of halves to which some columns of another tensor are added."""
    c = te.placeholder((20, 32 + more), "float16", "C")

    def added(result: te.Tensor, i: tirx.Var, j: tirx.Var) -> tirx.PrimExpr:
        return (result[i, j] + c[i, more + j].astype("float32")).astype("float16")

    function = mma.product(
        (20, 48),
        (1, 48, 32),
        (20, 32),
        48,
        (lambda i, j, k: (i, k), lambda i, j, k: (j // 32, k, j % 32)),
        added,
        (c,),
    )
    shapes = ((20, 48), (1, 48, 32), (20, 32 + more))
    given, weight, more_of = (_drawn(*shape, dtype="float16") for shape in shapes)
    product = given.astype("float32") @ weight[0].astype("float32")
    wanted = (product + more_of[:, more:].astype("float32")).astype("float16")
    return Case(function, (given, weight, more_of), wanted)


CASES: dict[str, tuple[Callable[[], Case], str]] = {
    "rows of 10, from the second": (lambda: _positive_part(10, 1, 8), "cuda_injective"),
    "rows of 16, from the second": (lambda: _positive_part(16, 1, 8), "cuda_injective"),
    "rows of 10, from the first": (lambda: _positive_part(10, 0, 8), "cuda_injective"),
    "rows of 20 halves, from the fifth": (lambda: _positive_part(20, 4, 16, "float16"), "cuda_injective"),
    "rows of 16, behind a stage": (lambda: _through_a_stage(16, 3, 8), "cuda_injective"),
    "left operand out of rows of 41": (lambda: _dense(41, 1, 0), "cuda_tiled"),
    "left operand out of rows of 44": (lambda: _dense(44, 2, 0), "cuda_tiled"),
    "what is added out of rows of 33": (lambda: _dense(40, 0, 1), "cuda_tiled"),
    "what is added out of rows of 34": (lambda: _dense(40, 0, 2), "cuda_tiled"),
    "convolution along rows": (lambda: _steps(30, 3), "cuda_tiled"),
    "what is added out of rows of 33 halves": (lambda: _residual_of_halves(1), "cuda_mma"),
    "what is added out of rows of 34 halves": (lambda: _residual_of_halves(2), "cuda_mma"),
}


def _drawn_values(space: DesignSpace) -> dict[str, int]:
    """Random decisions, those with the longest vectors of some."""
    generator = random.Random(3)
    drawn = [space.sample(generator, 50_000) for _ in range(24)]
    return max(drawn, key=lambda one: [one.get(name, 0) for name in ("vector", "stage", "fetch", "cols")])


@pytest.mark.parametrize("name", CASES)
def test_vectors_are_aligned_in_memory(name: str, tmp_path: Path) -> None:
    make, rule = CASES[name]
    case = make()
    space = space_for(fn.task(case.function), gpu_board().hardware)
    assert space.rule.name == rule
    values = _drawn_values(space)
    made = np.full(case.output.shape, np.nan, case.output.dtype)
    function = scheduled_function(space.apply(space.candidate(values, "test")))
    emulate(function, [*case.inputs, made], gpu_target(), tmp_path)
    tolerance = 2e-3 if case.output.dtype == np.float16 else 1e-4
    np.testing.assert_allclose(made, case.output, rtol=tolerance, atol=tolerance, err_msg=str(values))


def test_vectors_of_whole_rows_stay_as_long_as_they_were() -> None:
    for columns, dtype, longest in ((16, "float32", 4), (24, "float16", 8)):
        case = _positive_part(columns, 0, columns, dtype)
        space = space_for(fn.task(case.function), gpu_board().hardware)
        (vector,) = (one for one in space.decisions if one.name == "vector")
        assert max(vector.choices) == longest
