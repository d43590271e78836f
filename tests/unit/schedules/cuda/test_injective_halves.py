"""Chains of halves on a GPU: accesses of 16 bytes, also where the last block is not full."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tvm import te, tirx

from benchmarks.gpu.machine_code import opcodes_of, widths
from host.schedules import scheduled_function, space_for
from tests.cuda_emulator.run import emulate
from tests.unit.schedules import functions as fn
from tests.unit.schedules.cuda.cuda_cases import gpu_board, gpu_target

_SHAPE = (3, 40, 64)


def _chain(padded: int = 0) -> tirx.PrimFunc:
    """A bias is added, negative numbers become zero, and the rest is multiplied by another tensor."""
    a, c = (te.placeholder(_SHAPE, "float16", name) for name in "AC")
    bias = te.placeholder(_SHAPE[-1:], "float16", "B")
    zero = tirx.const(0.0, "float32")
    total = te.compute(_SHAPE, lambda *i: a(*i).astype("float32") + bias[i[-1]].astype("float32"), name="sum")

    def end(i: tirx.Var, j: tirx.Var, k: tirx.Var) -> tirx.PrimExpr:
        product = te.max(total[i, j, k], zero) * c[i, j, k].astype("float32")
        return (
            tirx.if_then_else(j >= padded, product, zero).astype("float16")
            if padded
            else product.astype("float16")
        )

    return te.create_prim_func([a, bias, c, te.compute(_SHAPE, end, name="end")])


@pytest.mark.parametrize("threads", [64, 512])
def test_chains_of_halves_move_16_bytes_at_once(threads: int, tmp_path: Path) -> None:
    space = space_for(fn.task(_chain()), gpu_board().hardware)
    assert space.rule.name == "cuda_injective"
    candidate = space.candidate({"threads": threads, "vector": 8}, "test")
    draw = np.random.default_rng(0)
    shapes = (_SHAPE, _SHAPE[-1:], _SHAPE)
    a, bias, c = (draw.standard_normal(shape).astype("float16") for shape in shapes)
    made = np.full(_SHAPE, np.nan, "float16")
    done = emulate(scheduled_function(space.apply(candidate)), [a, bias, c, made], gpu_target(), tmp_path)
    wanted = np.maximum(a.astype("float32") + bias, 0) * c
    np.testing.assert_allclose(made.astype("float32"), wanted, rtol=1e-3, atol=1e-6)
    (resources,) = done.kernel.resources
    assert not resources.spills
    assert not resources.stack_bytes
    assert widths(sum(opcodes_of(done.kernel.cubin.content).values(), start=Counter())) == {"16": 4}


def test_what_a_condition_decides_is_not_read_ahead() -> None:
    space = space_for(fn.task(_chain(padded=3)), gpu_board().hardware)
    (vector,) = (decision for decision in space.decisions if decision.name == "vector")
    assert vector.choices == (1, 2, 4)
