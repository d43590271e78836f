"""Models in bfloat16: which products are dot products, how weights lie, and how far results move."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from tvm import relax

from host.errors import LoweringError
from host.lowering import lower
from host.lowering.builder import Builder
from host.lowering.graph import Value, constant
from host.lowering.ops import known_operators
from host.lowering.passes.use_bfloat16 import use_bfloat16
from host.model import LoweredModel
from host.schedules import space_for
from host.tensor_ir.bfloat16 import as_bits
from targets import Board
from tests.unit.lowering import harness
from tests.unit.lowering.harness import imported, normal, relax_module, run, run_lowered, weight
from tests.unit.schedules.cpu import bfloat16_cases as cases

IMAGE = [normal(1, 6, 20, 20)]
ROWS = [normal(8, 64)]


def board() -> Board:
    """A board with the instruction, compiled for any x86-64 machine: only unscheduled functions run here."""
    found = cases.board()
    return replace(found, tvm_target=harness.board(16).tvm_target)


def perceptron(builder: relax.BlockBuilder, data: relax.Var) -> relax.Expr:
    """Two dense layers with an activation and a residual sum, and softmax."""
    first = relax.op.nn.relu(relax.op.add(relax.op.matmul(data, weight(64, 64)), weight(64)))
    total = relax.op.add(relax.op.matmul(first, weight(64, 64, seed=2)), first)
    return relax.op.nn.softmax(relax.op.matmul(total, weight(64, 33)))


def convolutions(builder: relax.BlockBuilder, data: relax.Var) -> relax.Expr:
    """A convolution, one of each channel, one in groups, and one of an odd number of channels."""
    first = relax.op.nn.relu(relax.op.nn.conv2d(data, weight(32, 6, 3, 3), padding=1))
    single = relax.op.nn.conv2d(first, weight(32, 1, 3, 3), padding=1, groups=32)
    pairs = relax.op.nn.conv2d(single, weight(30, 16, 3, 3), padding=1, strides=2, groups=2)
    odd = relax.op.strided_slice(pairs, [1], [0], [27])
    return relax.op.nn.conv2d(odd, weight(16, 27, 1, 1))


def lowered(build: harness.Build, inputs: list[np.ndarray]) -> LoweredModel:
    return lower(imported(relax_module(build, inputs)), board(), half="bfloat16")


@pytest.mark.parametrize(("build", "inputs"), [(perceptron, ROWS), (convolutions, IMAGE)])
def test_results_move_by_the_rounding_and_no_more(build: harness.Build, inputs: list[np.ndarray]) -> None:
    (wanted,) = run(relax_module(build, inputs), inputs)
    (found,) = run_lowered(lowered(build, inputs), inputs)
    assert found.dtype == np.float32, "the model's outputs keep their type"
    error = np.abs(found - wanted).max() / np.abs(wanted).max()
    assert 1e-4 < error < 2e-2


def gated(builder: relax.BlockBuilder, data: relax.Var) -> relax.Expr:
    """A layer whose result is read twice where it is activated, as in QuickGELU."""
    first = relax.op.add(relax.op.matmul(data, weight(64, 64)), weight(64))
    gate = relax.op.sigmoid(relax.op.multiply(first, relax.const(1.702, "float32")))
    return relax.op.matmul(relax.op.multiply(first, gate), weight(64, 64))


def test_a_result_that_its_activation_reads_twice_is_compiled() -> None:
    model = lowered(gated, ROWS)
    written = [as_bits(task.function) for task in model.tasks]
    assert any("T.Let" in function.script() or "with T.let" in function.script() for function in written)
    assert not any("bfloat16" in function.script() for function in written)


def test_products_are_dot_products_and_the_others_stay() -> None:
    model = lowered(convolutions, IMAGE)
    names = sorted(task.name for task in model.tasks)
    assert sum("dot_conv" in name or "dot_dense" in name for name in names) == 2
    assert any("depthwise_conv" in name for name in names) and any("grouped_conv" in name for name in names)
    for task in model.tasks:
        rule = space_for(task, board().hardware).rule.name
        assert rule == ("dot" if "dot_" in task.name else rule) and rule in ("dot", "tiled", "injective")
        if "dot_" in task.name:
            text = task.function.script()
            assert "bfloat16" in text.split("pad_temp = ")[0]
            assert 'T.Cast("bfloat16", T.Cast("float32"' not in text, "what is stored so is not widened first"


def test_weights_lie_as_an_instruction_reads_them() -> None:
    model = lowered(perceptron, ROWS)
    shapes = [array.shape for array in model.parameters if array.dtype.name == "bfloat16"]
    assert shapes == [(4, 32, 16, 2), (4, 32, 16, 2), (3, 32, 16, 2)]
    builder = Builder(known_operators())
    data = Value((5, 3), "float32", name="data")
    numbers = np.arange(3 * 20, dtype=np.float32).reshape(3, 20) / 7
    result = builder.one("dense", [data, constant(numbers)], (5, 20), "float32")
    [pad, product] = use_bfloat16(builder.graph([data], result), 16).nodes
    assert (pad.op, pad.output.shape, product.op) == ("pad", (5, 4), "dot_dense")
    packed = product.inputs[1].data
    assert packed is not None and packed.shape == (2, 2, 16, 2) and packed.dtype == ml_dtypes.bfloat16
    rounded = numbers.astype(ml_dtypes.bfloat16)
    for row, column in np.ndindex(4, 32):
        wanted = rounded[row, column] if row < 3 and column < 20 else 0.0
        assert packed[column // 16, row // 2, column % 16, row % 2] == wanted


def test_sums_and_small_constants_stay_in_single_precision() -> None:
    model = lowered(perceptron, ROWS)
    assert {array.dtype.name for array in model.parameters if array.ndim == 1} == {"float32"}
    for task in model.tasks:
        for line in task.function.script().splitlines():
            if "alloc_buffer" in line and "pad_temp" not in line and "prologue" not in line:
                assert "bfloat16" not in line, f"{task.name}: {line}"


def test_numbers_that_bfloat16_does_not_hold_stay_single() -> None:
    def build(builder: relax.BlockBuilder, data: relax.Var) -> relax.Expr:
        large = np.full((64, 64), 1.0, "float32")
        large[3, 5] = np.finfo("float32").max
        return relax.op.matmul(data, relax.const(large))

    model = lowered(build, ROWS)
    assert {array.dtype.name for array in model.parameters} == {"float32"}


def test_a_processor_without_the_instruction_is_refused() -> None:
    with pytest.raises(LoweringError, match="has no dot products of bfloat16; use --dtype fp32"):
        lower(imported(relax_module(perceptron, ROWS)), harness.board(16), half="bfloat16")


def test_a_processor_whose_dot_products_are_slower_multiplies_and_adds() -> None:
    found = board()
    assert found.hardware.has_fast_bfloat16 and found.hardware.bfloat16 is not None
    unit = replace(found.hardware.bfloat16, per_cycle=found.hardware.fma_per_cycle / 4)
    slow = replace(found, hardware=replace(found.hardware, bfloat16=unit))
    assert not slow.hardware.has_fast_bfloat16
    model = lower(imported(relax_module(perceptron, ROWS)), slow, half="bfloat16")
    assert {space_for(task, slow.hardware).rule.name for task in model.tasks} == {"tiled", "rowwise"}
    assert {array.dtype.name for array in model.parameters if array.size >= 1024} == {"bfloat16"}
    (wanted,) = run(relax_module(perceptron, ROWS), ROWS)
    (made,) = run_lowered(model, ROWS)
    assert 1e-4 < np.abs(made - wanted).max() / np.abs(wanted).max() < 2e-2
