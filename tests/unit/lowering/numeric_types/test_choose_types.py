"""Layers that a plan leaves in single precision, and what follows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from tvm import relax

from host.errors import LoweringError
from host.lowering import lower
from host.model import Layer, LoweredModel
from host.model.site import HALF, SINGLE, TYPE
from host.plans.plan import ModelPlan
from targets import Board, declared_boards
from tests.unit.lowering import harness
from tests.unit.lowering.harness import imported, normal, relax_module, run, run_lowered, weight
from tests.unit.schedules.cpu import bfloat16_cases as cases

ROWS = [normal(8, 64)]
HALVES = ("bfloat16", "float16")


def board(half: str) -> Board:
    """A processor that computes in the type, compiled for this machine: only unscheduled functions run."""
    found = cases.board() if half == "bfloat16" else declared_boards()["raspberry_pi_5"]
    return replace(found, tvm_target=harness.board(16).tvm_target)


def named(builder: relax.BlockBuilder, position: int, value: relax.Expr) -> relax.Var:
    """A value that a layer of the model's file makes."""
    return builder.emit(value, Layer(position, f"layer{position}", "MatMul").variable)


def network(builder: relax.BlockBuilder, data: relax.Var) -> relax.Expr:
    """Three dense layers with a norm between the first and the second."""
    first = named(builder, 0, relax.op.matmul(data, weight(64, 64, seed=1)))
    normed = relax.op.nn.layer_norm(first, weight(64, seed=2), weight(64, seed=3), axes=[-1])
    second = named(builder, 1, relax.op.matmul(normed, weight(64, 64, seed=4)))
    return named(builder, 2, relax.op.matmul(relax.op.nn.relu(second), weight(64, 64, seed=5)))


MODULE = relax_module(network, ROWS)


def lowered(half: str, decisions: Mapping[str, int] | None = None) -> LoweredModel:
    return lower(imported(MODULE), board(half), half=half, decisions=decisions)


def kept(half: str, *layers: int) -> LoweredModel:
    """The network with some layers in single precision."""
    return lowered(half, {f"{TYPE} of layer{number}": SINGLE for number in layers})


def types_of(model: LoweredModel) -> list[tuple[str, list[str]]]:
    """The types of what each call of a function reads and makes."""
    tasks = {task.name: task.function for task in model.tasks}
    return [(one.kernel, [str(each.dtype) for each in tasks[one.kernel].params]) for one in model.calls.calls]


@pytest.mark.parametrize("half", HALVES)
def test_each_product_with_weights_is_a_site_whose_passes_take_halves(half: str) -> None:
    sites = [one for one in lowered(half).sites if one.kind == TYPE]
    assert [one.name for one in sites] == [f"type of layer{number}" for number in range(3)]
    assert {(one.options, one.own, one.taken) for one in sites} == {((SINGLE, HALF), HALF, HALF)}
    assert ModelPlan.of(lowered(half).sites).is_own


def test_a_model_in_single_precision_has_no_such_site() -> None:
    single = lower(imported(MODULE), board("bfloat16"))
    assert not [one for one in single.sites if one.kind == TYPE]


@pytest.mark.parametrize("half", HALVES)
def test_a_layer_in_single_precision_reads_and_multiplies_single_precision(half: str) -> None:
    model = kept(half, 2)
    calls = types_of(model)
    assert all(half in types for _, types in calls[:-1])
    name, types = calls[-1]
    assert "packed_dense" in name and set(types) == {"float32"}
    # What it reads is made in halves, and stored as it is computed.
    assert calls[-2][1][-1] == "float32" and half in calls[-2][1]
    assert ModelPlan.of(model.sites).decisions == (("type of layer2", SINGLE),)


@pytest.mark.parametrize("half", HALVES)
def test_a_function_without_weights_follows_what_is_beside_it(half: str) -> None:
    first, norm, *_ = types_of(kept(half, 1))
    assert first[1][-1] == "float32", "what the norm reads is not rounded"
    assert set(norm[1]) == {"float32"}
    first, norm, *_ = types_of(lowered(half))
    assert first[1][-1] == half and norm[1][-1] == half


@pytest.mark.parametrize("half", HALVES)
def test_a_model_whose_layers_all_stay_computes_as_in_single_precision(half: str) -> None:
    (wanted,) = run(MODULE, ROWS)
    (found,) = run_lowered(kept(half, 0, 1, 2), ROWS)
    (rounded,) = run_lowered(lowered(half), ROWS)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    assert np.abs(rounded - wanted).max() > 1e-3


@pytest.mark.parametrize("half", HALVES)
def test_a_mixed_model_loses_less_than_one_in_halves(half: str) -> None:
    (wanted,) = run(MODULE, ROWS)
    (mixed,), (rounded,) = (run_lowered(one, ROWS) for one in (kept(half, 0, 1), lowered(half)))
    assert 0.0 < np.abs(mixed - wanted).max() < np.abs(rounded - wanted).max()


def test_a_view_is_of_the_type_of_what_it_shows() -> None:
    def viewed(builder: relax.BlockBuilder, data: relax.Var) -> relax.Expr:
        first = named(builder, 0, relax.op.matmul(data, weight(64, 64, seed=1)))
        cube = relax.op.nn.softmax(relax.op.reshape(first, (2, 4, 64)), axis=1)
        return named(builder, 1, relax.op.matmul(relax.op.reshape(cube, (8, 64)), weight(64, 64, seed=4)))

    module = relax_module(viewed, ROWS)
    model = lower(imported(module), board("bfloat16"), half="bfloat16", decisions={"type of layer1": SINGLE})
    (found,), (wanted,) = run_lowered(model, ROWS), run(module, ROWS)
    np.testing.assert_allclose(found, wanted, atol=2e-2 * np.abs(wanted).max())
    first, softmax, *_ = types_of(model)
    assert first[1][-1] == "float32" and set(softmax[1]) == {"float32"}


def test_a_plan_with_an_impossible_type_is_refused() -> None:
    with pytest.raises(LoweringError, match="type of layer1 = 7"):
        lowered("bfloat16", {"type of layer1": 7})
