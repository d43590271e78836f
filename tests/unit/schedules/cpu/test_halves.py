"""Products of halves by multiply-adds: activations are widened once, before the nest that reads them."""

from __future__ import annotations

import random
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from tvm import te, tirx

from host.schedules import DesignSpace, scheduled_function, space_for
from host.schedules.cpu.tiled.roles import PAD_COPY, PAD_PEEL
from targets import Board
from tests.unit.schedules import functions as fn
from tests.unit.schedules.cpu import bfloat16_cases

HALVES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
Make = Callable[[str], tuple[tirx.PrimFunc, list[np.ndarray], np.ndarray]]


def _board(half: str) -> Board:
    return fn.board("avx2") if half == "float16" else bfloat16_cases.board()


def _widened(half: te.Tensor, name: str) -> te.Tensor:
    return te.compute(half.shape, lambda *i: half[i].astype("float32"), name=name)


def _drawn(half: str, *shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(HALVES[half])


def dense(half: str) -> tuple[tirx.PrimFunc, list[np.ndarray], np.ndarray]:
    """[23, 40] times packed weights for 48 columns."""
    a, w = te.placeholder((23, 40), half, name="A"), te.placeholder((3, 40, 16), half, name="W")
    wide, weight = _widened(a, "wide"), _widened(w, "weight")
    k = te.reduce_axis((0, 40), name="k")
    c = te.compute(
        (23, 48), lambda i, j: te.sum(wide[i, k] * weight[j // 16, k, j % 16], axis=k), name="anchor"
    )
    given = [_drawn(half, 23, 40), _drawn(half, 3, 40, 16)]
    flat = given[1].astype(np.float32).transpose(1, 0, 2).reshape(40, 48)
    return te.create_prim_func([a, w, c]), given, given[0].astype(np.float32) @ flat


def convolution(half: str) -> tuple[tirx.PrimFunc, list[np.ndarray], np.ndarray]:
    """A padded 3x3 convolution of [1, 9, 9, 5] to 32 channels."""
    a = te.placeholder((1, 9, 9, 5), half, name="A")
    w = te.placeholder((2, 3, 3, 5, 16), half, name="W")
    wide, weight = _widened(a, "wide"), _widened(w, "weight")
    padded = te.compute(
        (1, 11, 11, 5),
        lambda n, h, x, c: tirx.if_then_else(
            tirx.all(h >= 1, h < 10, x >= 1, x < 10), wide[n, h - 1, x - 1, c], fn.ZERO
        ),
        name="pad_temp",
    )
    kh, kw, k = (te.reduce_axis((0, extent), name) for extent, name in ((3, "kh"), (3, "kw"), (5, "k")))

    def element(n: tirx.Var, h: tirx.Var, x: tirx.Var, o: tirx.Var) -> tirx.PrimExpr:
        product = padded[n, h + kh, x + kw, k] * weight[o // 16, kh, kw, k, o % 16]
        return te.sum(product, axis=[kh, kw, k])

    c = te.compute((1, 9, 9, 32), element, name="anchor")
    given = [_drawn(half, 1, 9, 9, 5), _drawn(half, 2, 3, 3, 5, 16)]
    image, packed = (array.astype(np.float32) for array in given)
    return te.create_prim_func([a, w, c]), given, fn.convolution_numpy(image, packed, np.zeros(32), 1)


def _space(make: Make, half: str, threads: int = 1) -> DesignSpace:
    return space_for(fn.task(make(half)[0]), _board(half).hardware, threads)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("make", [dense, convolution])
def test_random_programs_compute_the_task(make: Make, half: str) -> None:
    _, given, wanted = make(half)
    space, generator = _space(make, half, 2), random.Random(0)
    assert space.rule.name == "tiled"
    for _ in range(3):
        values = space.sample(generator)
        scheduled = scheduled_function(space.apply(space.candidate(values, "random")))
        if half == "bfloat16":
            found = bfloat16_cases.run(scheduled, given, wanted.shape)
        else:
            found = fn.run(scheduled, given, wanted.shape, _board(half).tvm_target)
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5, err_msg=str(values))


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize(("make", "pads"), [(dense, [PAD_COPY]), (convolution, [PAD_COPY, PAD_PEEL])])
def test_activations_are_widened_once_and_weights_where_they_are_used(
    make: Make, pads: list[int], half: str
) -> None:
    space, generator = _space(make, half), random.Random(1)
    for pad in pads:
        values = next(v for v in (space.sample(generator) for _ in range(500)) if v["pad"] == pad)
        schedule = space.apply(space.candidate(values, "test"))
        [block] = [
            schedule.get(one)
            for one in schedule.get_child_blocks(schedule.get_sblock("root"))
            if schedule.get(one).name_hint == "anchor_update"
        ]
        types = {region.source.name: str(region.source.dtype) for region in block.reads}
        assert types.pop("W") == half
        assert set(types.values()) == {"float32"} and "A" not in types


@pytest.mark.parametrize("half", HALVES)
def test_the_estimate_has_what_widening_in_advance_costs(half: str) -> None:
    def with_rows(rows: int, kind: str) -> float:
        a, w = te.placeholder((rows, 64), kind, name="A"), te.placeholder((1, 64, 16), name="W")
        wide = a if kind == "float32" else _widened(a, "wide")
        k = te.reduce_axis((0, 64), name="k")
        c = te.compute((rows, 16), lambda i, j: te.sum(wide[i, k] * w[j // 16, k, j % 16], axis=k), name="c")
        space = space_for(fn.task(te.create_prim_func([a, w, c])), _board(half).hardware)
        return space.estimate_s(space.sample(random.Random(0)))

    assert with_rows(4096, half) > 1.02 * with_rows(4096, "float32")
