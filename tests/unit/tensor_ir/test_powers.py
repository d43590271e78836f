"""Powers as arithmetic: their errors, and what they are at the ends of the numbers."""

from __future__ import annotations

import tempfile
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from host.build import build_kernel_library
from host.build.kernel import compile_function, lower_function

_LANES = 16
_ENDS = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan)
_BASES = (
    *_ENDS,
    2.0,
    -2.0,
    0.5,
    -0.5,
    1e-45,
    -1e-45,
    3e-39,
    3.4e38,
    -3.4e38,
    1 + 2**-23,
    1 - 2**-24,
    -1 - 2**-23,
)
_EXPONENTS = (
    *_ENDS,
    2.0,
    3.0,
    -2.0,
    -3.0,
    0.5,
    -0.5,
    0.75,
    2.2,
    -127.5,
    149.0,
    1e-45,
    2.0**24 - 1,
    -(2.0**24),
    3e38,
)


def evaluate(bases: np.ndarray, exponents: np.ndarray | float) -> np.ndarray:
    """Powers of every pair, compiled for vectors; a number is known when it is compiled."""
    size = -(-bases.size // _LANES) * _LANES
    x = te.placeholder((size,), "float32", name="x")
    given = [np.resize(bases, size).astype("float32")]
    arguments = [x]
    if isinstance(exponents, np.ndarray):
        arguments.append(te.placeholder((size,), "float32", name="y"))
        given.append(np.resize(exponents, size).astype("float32"))

    def element(i: tirx.Var) -> tirx.PrimExpr:
        one = arguments[1](i) if len(arguments) > 1 else tirx.const(exponents, "float32")
        return tirx.power(x(i), one)

    return _computed(te.create_prim_func([*arguments, te.compute((size,), element, "z")]), given, size)[
        : bases.size
    ]


def _computed(function: tvm.tirx.PrimFunc, given: list[np.ndarray], size: int) -> np.ndarray:
    schedule = tvm.s_tir.Schedule(function)
    _, lanes = schedule.split(schedule.get_loops(schedule.get_sblock("z"))[0], [None, _LANES])
    schedule.vectorize(lanes)
    made = tvm.runtime.tensor(np.zeros(size, "float32"))
    target = tvm.target.Target("llvm")
    with tempfile.TemporaryDirectory() as folder:
        path = build_kernel_library({"k": schedule.mod["main"]}, Path(folder) / "k.so", target)
        tvm.runtime.load_module(str(path))["k"](*map(tvm.runtime.tensor, given), made)
    return np.asarray(made.numpy())


def _exact(bases: np.ndarray, exponents: np.ndarray | float) -> np.ndarray:
    with np.errstate(all="ignore"):
        # As many exponents: NumPy takes the root for the power of one half.
        wide = np.broadcast_to(np.asarray(exponents, "float32"), bases.shape).astype("float64")
        return np.asarray(np.power(bases.astype("float32").astype("float64"), wide).astype("float32"))


def _units_off(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference, in units of the last place of the exact result."""
    with np.errstate(all="ignore"):
        unit = np.spacing(np.abs(wanted)).astype("float64")
        return float(np.max(np.abs(found.astype("float64") - wanted) / unit))


def _same_at_ends(found: np.ndarray, wanted: np.ndarray) -> None:
    end = ~np.isfinite(wanted) | (wanted == 0)
    np.testing.assert_array_equal(found[end], wanted[end])
    real = end & ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found[real]), np.signbit(wanted[real]))
    assert _units_off(found[~end], wanted[~end]) <= 2.0


def test_powers_of_any_two_numbers_are_two_units_off_at_most() -> None:
    generator = np.random.default_rng(1)
    bases = np.exp2(generator.uniform(-149, 128, 200_000)).astype("float32")
    exponents = (generator.uniform(-150, 128, bases.size) / np.log2(bases.astype("float64"))).astype(
        "float32"
    )
    near = np.linspace(0.5, 2.0, 100_000).astype("float32")
    large = generator.uniform(-300, 300, near.size).astype("float32")
    bases, exponents = np.concatenate([bases, near]), np.concatenate([exponents, large])
    _same_at_ends(evaluate(bases, exponents), _exact(bases, exponents))


@pytest.mark.parametrize("exponent", [0.75, -0.75, 2.2, -7.0, 31.0, 0.1])
def test_powers_to_a_known_number(exponent: float) -> None:
    sizes = np.exp2(np.linspace(-149, 127.9, 50_000)).astype("float32")
    bases = np.concatenate([sizes, -sizes])
    _same_at_ends(evaluate(bases, exponent), _exact(bases, exponent))


def test_ends_of_any_two_numbers() -> None:
    pairs = np.array(list(product(_BASES, _EXPONENTS)), "float32")
    bases, exponents = np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])
    _same_at_ends(evaluate(bases, exponents), _exact(bases, exponents))


@pytest.mark.parametrize("exponent", _EXPONENTS)
def test_ends_of_powers_to_a_known_number(exponent: float) -> None:
    bases = np.array(_BASES, "float32")
    _same_at_ends(evaluate(bases, float(np.float32(exponent))), _exact(bases, exponent))


@pytest.mark.parametrize("base", [1.0, 2.0, 10.0, 0.3])
def test_a_known_number_to_any_power(base: float) -> None:
    exponents = np.concatenate([np.linspace(-160, 160, 50_000), _EXPONENTS]).astype("float32")
    size = -(-exponents.size // _LANES) * _LANES
    y = te.placeholder((size,), "float32", name="y")
    made = te.compute((size,), lambda i: tirx.power(tirx.const(base, "float32"), y(i)), "z")
    found = _computed(te.create_prim_func([y, made]), [np.resize(exponents, size)], size)[: exponents.size]
    _same_at_ends(found, _exact(np.full_like(exponents, base), exponents))


def test_kernels_call_no_power_of_the_library() -> None:
    x = te.placeholder((64,), "float32", name="x")
    z = te.compute((64,), lambda i: tirx.power(x(i), tirx.const(0.6, "float32")), "z")
    function = te.create_prim_func([x, z])
    target = tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "x86-64-v3"})
    assert "pow" in function.script()
    assert "pow" not in lower_function(function, "k", target).script()
    assert b"powf" not in compile_function(function, "k", target)


def test_a_power_that_may_not_be_computed_stays_a_call() -> None:
    x, y = (te.placeholder((48,), "float32", name=name) for name in "xy")

    def element(i: tirx.Var) -> tirx.PrimExpr:
        power = tirx.power(tirx.power(x(i - 3), y(i)) + tirx.const(1.0, "float32"), y(i))
        return tirx.power(x(i), y(i)) + tirx.if_then_else(i >= 3, power, tirx.const(0.0, "float32"))

    function = te.create_prim_func([x, y, te.compute((48,), element, "z")])
    # With names that stay in the expression this took minutes.
    lowered = lower_function(function, "k", tvm.target.Target("llvm")).script()
    assert lowered.count('"llvm.pow"') == 2 and "Let" not in lowered
    generator = np.random.default_rng(0)
    given = [generator.uniform(0.5, 2.0, 48).astype("float32") for _ in range(2)]
    wanted = np.power(*given)
    wanted[3:] += np.power(np.power(given[0][:-3], given[1][3:]) + 1, given[1][3:])
    np.testing.assert_allclose(_computed(function, given, 48), wanted, rtol=1e-6)
