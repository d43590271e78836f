"""Chains of halves on a GPU: accesses of 16 bytes, also where the last block is not full."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import s_tir, te, tirx

from benchmarks.gpu.machine_code import opcodes_of, widths
from host.build.cuda.pairs import with_pairs
from host.schedules import scheduled_function, space_for
from targets.nvidia import XAVIER_NX
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


Operation = Callable[[Any, Any, Any], Any]
_ZERO = tirx.const(0.0, "float32")
# What is computed in pairs: greatest and least beside arithmetic or not.
PAIRED: dict[str, tuple[Operation, bool]] = {
    "residual": (lambda a, b, c: a + c, False),
    "residual, then the positive part": (lambda a, b, c: tirx.max(a + c, _ZERO), True),
    "difference from a bias": (lambda a, b, c: a - b, False),
    "scaled": (lambda a, b, c: tirx.min(a * c, tirx.const(6.0, "float32")), True),
    "scaled and shifted": (lambda a, b, c: a * c + b, False),
}
# What rounds more than once stays in single precision.
SINGLE: dict[str, Operation] = {
    "two sums": lambda a, b, c: a + b + c,
    "SiLU": lambda a, b, c: a / (tirx.const(1.0, "float32") + tirx.exp(-a)),
    "GELU": lambda a, b, c: tirx.const(0.5, "float32") * a * (tirx.const(1.0, "float32") + tirx.tanh(a)),
    "no half": lambda a, b, c: a + tirx.const(0.1, "float32"),
}


def _of(operation: Operation) -> tirx.PrimFunc:
    a, c = (te.placeholder(_SHAPE, "float16", name) for name in "AC")
    bias = te.placeholder(_SHAPE[-1:], "float16", "B")

    def end(i: tirx.Var, j: tirx.Var, k: tirx.Var) -> tirx.PrimExpr:
        wide = (one.astype("float32") for one in (a[i, j, k], bias[k], c[i, j, k]))
        return operation(*wide).astype("float16")

    return te.create_prim_func([a, bias, c, te.compute(_SHAPE, end, name="end")])


def _made(function: tirx.PrimFunc, folder: Path) -> tuple[list[np.ndarray], np.ndarray, Counter[str]]:
    """Inputs with special numbers among them, outputs, and instructions by opcode."""
    space = space_for(fn.task(function), gpu_board().hardware)
    candidate = space.candidate({"threads": 64, "vector": 8}, "test")
    draw = np.random.default_rng(0)
    given = [(draw.standard_normal(shape) * 50).astype("float16") for shape in (_SHAPE, _SHAPE[-1:], _SHAPE)]
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 65504.0, 6e-8, -6e-8]
    given[0].ravel()[:64] = np.repeat(np.array(special, "float16"), 8)
    given[2].ravel()[:64] = np.tile(np.array(special, "float16"), 8)
    made = np.full(_SHAPE, 1.0, "float16")
    done = emulate(scheduled_function(space.apply(candidate)), [*given, made], gpu_target(), folder)
    return given, made, sum(opcodes_of(done.kernel.cubin.content).values(), start=Counter())


@pytest.mark.parametrize("name", PAIRED)
def test_chains_that_round_once_are_computed_in_pairs(name: str, tmp_path: Path) -> None:
    operation, ordered = PAIRED[name]
    (a, bias, c), made, found = _made(_of(operation), tmp_path)
    wide = [one.astype("float64") for one in (a, bias, c)]
    with np.errstate(all="ignore"):
        wanted = {
            "residual": lambda a, b, c: a + c,
            "residual, then the positive part": lambda a, b, c: np.maximum(a + c, 0.0),
            "difference from a bias": lambda a, b, c: a - b,
            "scaled": lambda a, b, c: np.minimum(a * c, 6.0),
            "scaled and shifted": lambda a, b, c: a * c + b,
        }[name](*wide).astype("float16")
    np.testing.assert_array_equal(made, wanted)
    # Of four pairs. The assembler writes sums and products as it likes, and moves a constant by HFMA2.
    kinds = Counter(opcode.split(".")[0] for opcode in found.elements())
    assert sum(kinds[kind] for kind in ("HADD2", "HMUL2", "HFMA2")) in (4, 5)
    # The positive part of a sum may be part of its instruction.
    assert kinds["HMNMX2"] + sum(".RELU" in opcode for opcode in found.elements()) == 4 * ordered
    assert not any(kinds[kind] for kind in ("FADD", "FMUL", "FFMA", "FMNMX", "F2F", "F2FP"))


@pytest.mark.parametrize("name", SINGLE)
def test_chains_that_round_more_often_stay_in_single_precision(name: str) -> None:
    space = space_for(fn.task(_of(SINGLE[name])), gpu_board().hardware)
    function = scheduled_function(space.apply(space.candidate({"threads": 64, "vector": 8}, "test")))
    assert with_pairs(function, "sm_87").script() == function.script()


def _cast(kind: str) -> tirx.PrimFunc:
    """Halves that become numbers of another type, and halves again, scheduled."""
    a = te.placeholder(_SHAPE, "float16", "A")
    there = te.compute(_SHAPE, lambda *i: a(*i).astype(kind).astype("float16"), name="end")
    space = space_for(fn.task(te.create_prim_func([a, there])), gpu_board().hardware)
    return scheduled_function(space.apply(space.candidate({"threads": 64, "vector": 8}, "test")))


@pytest.mark.parametrize("kind", ["int32", "int8", "bool"])
def test_halves_that_become_another_type_lose_what_it_cannot_hold(kind: str, tmp_path: Path) -> None:
    # Within the range of every type, and with a part behind the point.
    given = (np.random.default_rng(0).standard_normal(_SHAPE) * 30).astype("float16")
    given.ravel()[:4] = 0.0, -0.0, 0.5, -1.5
    made = np.full(_SHAPE, np.nan, "float16")
    emulate(_cast(kind), [given, made], gpu_target(), tmp_path)
    np.testing.assert_array_equal(made, given.astype(kind).astype("float16"))


def test_halves_that_are_rounded_to_bfloat16_are_not_taken_as_they_are() -> None:
    # The emulator has no bfloat16, so the program itself is compared.
    function = _cast("bfloat16")
    assert with_pairs(function, "sm_87").script() == function.script()


_Where = Callable[[Any], Any]


@pytest.mark.parametrize(
    ("where", "row", "allowed", "taken"),
    [
        (lambda step: step, lambda step: 1, None, True),
        (lambda step: step + 2, lambda step: 1, None, True),
        (lambda step: step + 1, lambda step: 1, None, False),
        (lambda step: 7 - step, lambda step: 1, None, False),
        (lambda step: 2 * step, lambda step: 1, None, False),
        (lambda step: 3, lambda step: step, None, False),
        (lambda step: step, lambda step: step, None, False),
        (lambda step: step, lambda step: 1, lambda step: step < 5, False),
    ],
    ids=["neighbours", "from 2", "from 1", "backwards", "every other", "rows", "diagonal", "condition"],
)
def test_only_steps_that_are_neighbours_are_paired(
    where: _Where, row: _Where, allowed: _Where | None, taken: bool
) -> None:
    a, end = (tirx.decl_buffer((8, 16), "float16", name, scope="local") for name in ("a", "end"))
    step, i, j = (tirx.Var(name, "int32") for name in ("step", "i", "j"))
    axes = [tirx.IterVar(tvm.ir.Range(0, size), var, tirx.IterVar.DataPar) for size, var in ((8, i), (16, j))]
    wide = tirx.BufferLoad(a, [i, j]).astype("float32")
    store = tirx.BufferStore(end, (wide + wide).astype("float16"), [i, j])
    block = s_tir.SBlock(axes, [], [], "end", store)
    condition = tirx.const(True, "bool") if allowed is None else allowed(step)
    there = [tirx.const(0, "int32") + value(step) for value in (row, where)]
    realised = s_tir.SBlockRealize(there, condition, block)
    loop = tirx.For(step, 0, 8, tirx.ForKind.UNROLLED, realised)
    function = tirx.PrimFunc([], loop)
    assert (with_pairs(function, "sm_87").script() != function.script()) == taken


def test_xavier_has_no_greatest_of_pairs() -> None:
    for name, taken in (("residual", True), ("residual, then the positive part", False)):
        space = space_for(fn.task(_of(PAIRED[name][0])), gpu_board(XAVIER_NX).hardware)
        function = scheduled_function(space.apply(space.candidate({"threads": 64, "vector": 8}, "test")))
        assert (with_pairs(function, "sm_72").script() != function.script()) == taken
