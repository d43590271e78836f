"""Tensors in half precision: which ones, what computes with them, and how far the results move."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tvm import relax

from host.importers import load_here as load
from host.importers.half_spread import with_half_spread
from host.lowering import lower
from host.model import HALF_SPREADS, LoweredModel
from host.schedules import space_for
from targets import board_for, declared
from tests.integration.small_models import convnet
from tests.unit.lowering.harness import board, imported, normal, relax_module, run, run_lowered, weight


def network(builder: relax.BlockBuilder, data: relax.Var) -> relax.Expr:
    """Two dense layers with an activation, a reshape in between, and softmax."""
    hidden = relax.op.nn.relu(relax.op.add(relax.op.matmul(data, weight(64, 96)), weight(96)))
    seen = relax.op.reshape(hidden, (2, 4, 96))
    return relax.op.nn.softmax(relax.op.matmul(seen, weight(96, 32)))


INPUTS = [normal(8, 64)]


def halved() -> LoweredModel:
    return lower(imported(relax_module(network, INPUTS)), board(8), half="float16")


def test_results_move_by_the_rounding_and_no_more() -> None:
    model = halved()
    (wanted,) = run(relax_module(network, INPUTS), INPUTS)
    (found,) = run_lowered(model, INPUTS)
    assert found.dtype == np.float32, "the model's outputs keep their type"
    error = np.abs(found - wanted).max() / np.abs(wanted).max()
    assert 0.0 < error < 2e-3


def test_large_tensors_are_halves_and_sums_are_not() -> None:
    model = halved()
    types = {array.dtype.name for array in model.parameters if array.size >= 1024}
    assert types == {"float16"}
    small = [array for array in model.parameters if array.size < 1024]
    assert small
    assert all(array.dtype == np.float32 for array in small)
    for task in model.tasks:
        for line in task.function.script().splitlines():
            if "alloc_buffer" in line:
                assert "float16" not in line, f"{task.name}: {line}"


def test_few_weights_of_products_are_halves_on_a_gpu() -> None:
    """Tensor cores and pairs of halves take no others; biases stay single."""
    weight = normal(16, 24)

    def build(builder: relax.BlockBuilder, data: relax.Var) -> relax.Expr:
        made = relax.op.matmul(data, relax.const(weight))
        return relax.op.add(made, relax.const(normal(24)))

    module = relax_module(build, [normal(64, 16)])
    jetson = board_for(declared()["jetson_orin_nano"])
    assert jetson is not None
    for found, wanted in ((jetson.on_gpu(), {"float16", "float32"}), (jetson, {"float32"})):
        model = lower(imported(module), found, half="float16")
        assert {array.dtype.name for array in model.parameters} == wanted


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        ("jetson_orin_nano", {"cuda_mma", "cuda_rowwise"}),
        ("jetson_xavier_nx", {"cuda_tiled", "cuda_rowwise"}),
        ("raspberry_pi_4", {"tiled", "rowwise"}),
    ],
)
def test_every_function_has_a_design_space(target: str, wanted: set[str]) -> None:
    found = board_for(declared()[target])
    assert found is not None
    found = found if found.gpu is None else found.on_gpu()
    model = lower(imported(relax_module(network, INPUTS)), found, half="float16")
    assert {space_for(task, found.hardware).rule.name for task in model.tasks} == wanted


@pytest.mark.parametrize(
    ("target", "half", "rules"),
    [
        ("jetson_orin_nano", "float16", ["cuda_injective", "cuda_mma"]),
        ("jetson_xavier_nx", "float16", ["cuda_tiled"]),
        ("jetson_orin_nano", "", ["cuda_tiled"]),
    ],
)
def test_tensor_cores_read_what_an_activation_stored(target: str, half: str, rules: list[str]) -> None:
    """An activation in front of a padded convolution is part of its function but for tensor cores."""

    def build(builder: relax.BlockBuilder, image: relax.Var) -> relax.Expr:
        scaled = builder.emit(relax.op.nn.silu(relax.op.multiply(image, relax.const(normal(1, 32, 1, 1)))))
        return builder.emit(relax.op.nn.conv2d(scaled, weight(48, 32, 3, 3), padding=(1, 1)))

    found = board_for(declared()[target])
    assert found is not None
    inputs = [normal(1, 32, 8, 8)]
    model = lower(imported(relax_module(build, inputs)), found.on_gpu(), half=half)
    assert [
        rule
        for task in model.tasks
        if (rule := space_for(task, found.on_gpu().hardware).rule.name) != "cuda_injective"
        or "silu" in task.name
    ] == rules
    (wanted,) = run(relax_module(build, inputs), inputs)
    (computed,) = run_lowered(model, inputs)
    assert np.abs(computed - wanted).max() < 4e-3 * np.abs(wanted).max()


def test_numbers_that_no_half_holds_stay_single() -> None:
    def build(builder: relax.BlockBuilder, data: relax.Var) -> relax.Expr:
        large = relax.const(np.full((64, 64), 1e6, "float32") * normal(64, 64))
        return relax.op.nn.relu(relax.op.matmul(data, large))

    inputs = [normal(8, 64)]
    model = lower(imported(relax_module(build, inputs)), board(8), half="float16")
    assert {array.dtype.name for array in model.parameters} == {"float32"}
    (wanted,), (found,) = run(relax_module(build, inputs), inputs), run_lowered(model, inputs)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("half", HALF_SPREADS)
def test_spread_is_the_models_own(tmp_path: Path, half: str) -> None:
    model = load(convnet(tmp_path / "model.onnx"), {}, 0)
    spreads = [case.spread for case in with_half_spread(model, half)]
    assert all(HALF_SPREADS[half] <= spread < 0.1 for spread in spreads)
    assert [case.spread for case in model.golden] == [0.0] * len(spreads)
