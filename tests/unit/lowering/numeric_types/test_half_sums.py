"""Products of halves on processors that add and multiply these: what is chosen, and how far sums are off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx

from host.lowering import lower
from host.lowering.expressions.narrowing import as_half
from host.lowering.passes.halves.half_sums import block_of
from host.model import LoweredModel
from targets import Board, board_for, declared
from tests.unit.lowering import harness
from tests.unit.lowering.harness import imported, normal, relax_module, run_lowered, weight

IMAGE = [normal(1, 16, 12, 12)]
# Of a block of 16 products, the sum of the model's own rounding and of the block's: see the pass.
_BLOCK_ERROR = 1.3 * 2.0**-11


def board(name: str = "raspberry_pi_5") -> Board:
    """A declared board, whose functions are compiled for this machine."""
    found = board_for(declared()[name])
    assert found is not None
    return replace(found, tvm_target=harness.board().tvm_target)


def network(builder: relax.BlockBuilder, data: relax.Var) -> relax.Expr:
    """A block of MobileNetV2 with a residual sum, a convolution with a window, and one in groups."""
    wide = relax.op.nn.conv2d(data, weight(32, 16, 1, 1))
    wide = relax.op.clip(relax.op.add(wide, weight(1, 32, 1, 1)), 0.0, 6.0)
    each = relax.op.nn.conv2d(wide, weight(32, 1, 3, 3), padding=(1, 1), groups=32)
    each = relax.op.clip(relax.op.add(each, weight(1, 32, 1, 1)), 0.0, 6.0)
    back = relax.op.add(relax.op.nn.conv2d(each, weight(16, 32, 1, 1)), data)
    seen = relax.op.nn.relu(relax.op.nn.conv2d(back, weight(24, 16, 3, 3), padding=(1, 1), strides=(2, 2)))
    return relax.op.nn.conv2d(seen, weight(24, 12, 3, 3), padding=(1, 1), groups=2)


def lowered(name: str = "raspberry_pi_5", half: str = "float16") -> LoweredModel:
    return lower(imported(relax_module(network, IMAGE)), board(name), half=half)


def names(model: LoweredModel) -> set[str]:
    return {task.name for task in model.tasks}


def test_products_of_halves_where_the_processor_has_them() -> None:
    found = names(lowered())
    for op in ("half_dense", "half_conv", "half_depthwise_conv", "grouped_conv"):
        assert any(op in name for name in found), op
    assert not any("half" in name for name in names(lowered("raspberry_pi_4")))
    assert not any("half" in name for name in names(lowered(half="")))


def test_a_model_stays_within_the_rounding_of_its_tensors() -> None:
    (wanted,) = harness.run(relax_module(network, IMAGE), IMAGE)
    (found,) = run_lowered(lowered(), IMAGE)
    assert found.dtype == np.float32, "the model's outputs keep their type"
    error = np.abs(found - wanted).max() / np.abs(wanted).max()
    assert 0.0 < error < 5e-3


def test_wide_windows_are_computed_by_tiles_where_that_is_less_work() -> None:
    """A quarter of the products in single precision are fewer instructions than all of them in halves."""

    def build(builder: relax.BlockBuilder, data: relax.Var) -> relax.Expr:
        data = relax.op.nn.relu(relax.op.nn.conv2d(data, weight(32, 16, 1, 1)))
        data = relax.op.nn.relu(relax.op.nn.conv2d(data, weight(64, 32, 3, 3), padding=(1, 1)))
        # A function that ends in a transpose stays direct.
        return relax.op.nn.conv2d(data, weight(16, 64, 1, 1))

    inputs = [normal(1, 16, 28, 28)]
    model = imported(relax_module(build, inputs))
    found, direct = (lower(model, board(), approximate, "float16") for approximate in (True, False))
    assert any("winograd_conv" in name for name in names(found))
    assert any("half_conv" in name for name in names(direct))
    # The weights of the window are halves in memory, nine for each pair of channels.
    assert {(16, 32, 3, 3, 4)} <= {one.shape for one in found.parameters if one.dtype == np.float16}
    (wanted,) = harness.run(relax_module(build, inputs), inputs)
    (ours,) = run_lowered(found, inputs)
    assert 0.0 < np.abs(ours - wanted).max() < 2e-3 * np.abs(wanted).max()


def test_weights_that_no_half_holds_are_multiplied_in_single_precision() -> None:
    large = normal(16, 32)
    large[3, 5] = 7e4

    def build(builder: relax.BlockBuilder, data: relax.Var) -> relax.Expr:
        return relax.op.matmul(relax.op.negative(data), relax.const(large))

    inputs = [normal(8, 16)]
    model = lower(imported(relax_module(build, inputs)), board(), half="float16")
    assert not any("half" in name for name in names(model))
    (found,) = run_lowered(model, inputs)
    # The negated input is a half in memory.
    np.testing.assert_allclose(found, -inputs[0] @ large, rtol=1e-3, atol=10.0)


@pytest.mark.parametrize("scale", [1e5, 3e4, 1e-6])
@pytest.mark.parametrize("shape", [(8, 16), (2, 4, 16)])
def test_inputs_of_any_size_are_multiplied_in_single_precision(shape: tuple[int, ...], scale: float) -> None:
    factor = normal(16, 32)

    def build(builder: relax.BlockBuilder, data: relax.Var) -> relax.Expr:
        return relax.op.matmul(relax.op.reshape(data, (8, 16)), relax.const(factor))

    inputs = [normal(*shape) * np.float32(scale)]
    model = lower(imported(relax_module(build, inputs)), board(), half="float16")
    (found,) = run_lowered(model, inputs)
    np.testing.assert_allclose(found, inputs[0].reshape(8, 16) @ factor, rtol=1e-4, atol=1e-4 * scale)


def test_convolutions_of_inputs_are_left_in_single_precision() -> None:
    def build(builder: relax.BlockBuilder, data: relax.Var) -> relax.Expr:
        wide = relax.op.nn.conv2d(data, weight(32, 16, 3, 3), padding=(1, 1))
        each = relax.op.nn.conv2d(data, weight(16, 1, 3, 3), padding=(1, 1), groups=16)
        return relax.op.concat([wide, each], axis=1)

    found = names(lower(imported(relax_module(build, IMAGE)), board(), half="float16"))
    assert len(found) > 1 and not any("half_" in name for name in found)


@pytest.mark.parametrize("depth", [16, 24, 96, 512])
def test_sums_are_off_by_what_the_estimate_says(depth: int) -> None:
    """Against double precision: the error does not grow with the number of blocks, beside the sum's size."""
    factor = normal(depth, 64)

    def build(builder: relax.BlockBuilder, data: relax.Var) -> relax.Expr:
        return relax.op.matmul(relax.op.negative(data), relax.const(factor))

    inputs = [normal(32, depth)]
    model = lower(imported(relax_module(build, inputs)), board(), half="float16")
    assert any("half_dense" in name for name in names(model))
    (found,) = run_lowered(model, inputs)
    exact = -inputs[0].astype("float64") @ factor.astype("float64")
    error = float(np.sqrt(np.mean((found - exact) ** 2)) / exact.std())
    assert 0.2 * _BLOCK_ERROR < error < 1.4 * _BLOCK_ERROR


@pytest.mark.parametrize(
    ("depth", "block"), [(16, 16), (24, 12), (40, 8), (64, 16), (72, 12), (960, 12), (3, 0)]
)
def test_blocks_divide_the_depth(depth: int, block: int) -> None:
    assert block_of(depth) == block


def _as_halves(total: Callable[..., tirx.PrimExpr], count: int) -> tuple[str, np.ndarray, np.ndarray]:
    """What a sum of halves is written as, what it gives, and the same computed in single precision."""
    size = 4096
    given = [te.placeholder((size,), "float16") for _ in range(count)]

    def written(half: Callable[[tirx.PrimExpr], tirx.PrimExpr]) -> tirx.PrimFunc:
        made = te.compute((size,), lambda i: half(total(*(one[i].astype("float32") for one in given))))
        return te.create_prim_func([*given, made])

    arguments = [
        tvm.runtime.tensor(normal(size, seed=number).astype("float16") * np.float16(4))
        for number in range(count)
    ]
    results = []
    functions = [written(lambda value: as_half(value, "float16")), written(lambda v: v.astype("float16"))]
    for function in functions:
        target = tvm.target.Target(harness.board().tvm_target)
        compiled = tvm.compile(tvm.IRModule({"main": function}), target=target).jit()
        made = tvm.runtime.tensor(np.full(size, np.nan, "float16"))
        compiled["main"](*arguments, made)
        results.append(made.numpy())
    return functions[0].script(), results[0], results[1]


def test_one_sum_of_halves_and_its_bounds_are_the_same_in_halves() -> None:
    def total(a: tirx.PrimExpr, b: tirx.PrimExpr) -> tirx.PrimExpr:
        return tirx.max(tirx.min(a + b, tirx.const(6.1, "float32")), tirx.const(0.0, "float32"))

    script, found, wanted = _as_halves(total, 2)
    assert "float32" not in script
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("total", "count"),
    [
        (lambda a, b, c: (a + b) + c, 3),
        (lambda a, b, c, d: (a + b) - (c - d), 4),
        (lambda a, b, c: tirx.max(a + b, tirx.const(0.0, "float32")) + c, 3),
        (lambda a: a + tirx.const(0.1, "float32"), 1),
    ],
)
def test_what_would_be_rounded_twice_is_computed_in_single_precision(
    total: Callable[..., tirx.PrimExpr], count: int
) -> None:
    _, found, wanted = _as_halves(total, count)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("bound", [1e6, float("inf")])
def test_bounds_that_no_half_holds_stay_single(bound: float) -> None:
    given = te.placeholder((8,), "float16")
    made = te.compute(
        (8,), lambda i: as_half(tirx.min(given[i].astype("float32"), tirx.const(bound, "float32")), "float16")
    )
    assert "float32" in te.create_prim_func([given, made]).script()
