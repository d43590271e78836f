"""Products of gate and up in AMX tiles: which are one with their activation, and what they compute."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from host.lowering import lower
from host.model import LoweredModel
from host.schedules import scheduled_function, space_for
from targets import Board
from tests.decoders.operations import dequantised
from tests.scheduling.repetitions import in_turn
from tests.unit.lowering.harness import imported
from tests.unit.lowering.numeric_types.test_quantised_weights import KINDS, Kind, run, weight_of
from tests.unit.schedules.cpu.tiles import tile_cases as cases
from tests.unit.schedules.cpu.tiles.test_quantised_tiles import fits, made_of, rounded, task_of

ACTIVATIONS: dict[str, tuple[Any, Callable[[np.ndarray], np.ndarray]]] = {
    "silu": (relax.op.nn.silu, lambda x: x / (1 + np.exp(-x))),
    "gelu_tanh": (
        relax.op.nn.gelu_tanh,
        lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    ),
    "relu": (relax.op.nn.relu, lambda x: np.maximum(x, 0)),
}


def gated(
    sizes: tuple[int, int, int],
    kind: Kind,
    on: Board,
    activation: str = "silu",
    *,
    swapped: bool = False,
    kept: bool = False,
    down: Kind | None = None,
) -> tuple[LoweredModel, np.ndarray]:
    """A lowered product (T, K) by (2 N, K) with its activation (T, N), and the values of its weight.

    Args:
        sizes: T, N, K.
        kind: of the weight.
        on: the board.
        activation: of the gate.
        swapped: whether the second half of the outputs is the gate.
        kept: whether the product is a result too.
        down: of the weight (K, N) that the gated product is multiplied by, if it is.
    """
    rows, columns, depth = sizes
    weight = weight_of(2 * columns, depth, kind)
    builder = relax.BlockBuilder()
    data = relax.Var("data", relax.TensorType((rows, depth), "float32"))
    options = tvm.ir.StringImm(json.dumps(kind.options))
    arguments = relax.Tuple([data, *(relax.const(one) for one in weight), options])
    with builder.function("main", [data]):
        with builder.dataflow():
            type_ = relax.TensorType((rows, 2 * columns), "float32")
            both = builder.emit(relax.call_dps_packed("edgetlm.quantised_dense", arguments, type_))
            gate, up = (
                builder.emit(relax.op.strided_slice(both, [1], [begin], [begin + columns]))
                for begin in ((columns, 0) if swapped else (0, columns))
            )
            made = builder.emit(relax.op.multiply(builder.emit(ACTIVATIONS[activation][0](gate)), up))
            if down is not None:
                text = tvm.ir.StringImm(json.dumps(down.options))
                behind = (relax.const(one) for one in weight_of(depth, columns, down))
                narrow = relax.TensorType((rows, depth), "float32")
                call = relax.call_dps_packed(
                    "edgetlm.quantised_dense", relax.Tuple([made, *behind, text]), narrow
                )
                made = builder.emit(call)
            result = builder.emit_output(relax.Tuple([made, both]) if kept else made)
        builder.emit_func_output(result)
    return lower(imported(builder.get()), on), dequantised(weight, kind.options)


def expected(data: np.ndarray, weight: np.ndarray, activation: str) -> tuple[np.ndarray, np.ndarray]:
    """The gated products and, of each, a size that errors may be compared with."""
    both = data.astype("float64") @ weight.T.astype("float64")
    gate, up = np.split(both, 2, axis=1)
    with np.errstate(over="ignore"):
        made = ACTIVATIONS[activation][1](gate) * up
    error = np.split(np.abs(data) @ np.abs(weight).T * 2.0**-7 + 1e-5 * np.abs(both).max(), 2, axis=1)
    # Neither activation is steeper than 1.13.
    return made, 1.13 * error[0] * (np.abs(up) + error[1]) + np.abs(gate) * error[1] + 1e-6


@in_turn("kind, form", KINDS, [((32, 64, 192), 1), ((64, 48, 64), 2), ((96, 16, 1280), 1)])
@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
def test_random_programs_compute_the_gated_product(
    kind: str, form: tuple[tuple[int, int, int], int], activation: str
) -> None:
    sizes, threads = form
    on = cases.board(threads)
    model, weight = gated(sizes, rounded(kind), on, activation)
    space = space_for(task_of(model), on.hardware, threads)
    assert space.rule.name == ("gated_tiles" if fits(KINDS[kind]) else "quantised")
    if not fits(KINDS[kind]):
        return
    data = np.random.default_rng(1).normal(size=(sizes[0], sizes[2])).astype("float32")
    data[0, :32], data[-1, -1] = 0.0, 1e4
    made = made_of(space, space.sample(random.Random(sizes[0] + len(kind))), model, data)
    wanted, bound = expected(data, weight, activation)
    assert (np.abs(made - wanted) <= bound).all()


def test_blocks_and_turns_follow_one_another() -> None:
    """Whether a part of the depth has more steps than a turn has rows, or fewer; of one turn or several."""
    on = cases.board()
    for rows in (32, 128):
        model, weight = gated((rows, 96, 1152), rounded("int4"), on)
        space = space_for(task_of(model), on.hardware)
        data = np.random.default_rng(3).normal(size=(rows, 1152)).astype("float32")
        wanted, _ = expected(data, weight, "silu")
        for wide, tall, depth in ((6, 2, 36), (1, 2, 36), (3, 1, 12), (2, 2, 4)):
            made = made_of(space, {"vectors": wide, "rows": tall, "depth": depth}, model, data)
            np.testing.assert_allclose(made, wanted, atol=1e-2 * np.abs(wanted).max())


def test_activations_are_exact_for_all_sizes() -> None:
    """Weights of 1 give gate and up what data has, which is rounded to bfloat16 before."""
    on = cases.board()
    numbers = np.concatenate([np.linspace(-100, 100, 1021), [0.0, np.inf, np.nan]]).astype("float32")
    numbers = (numbers.view("uint32") & 0xFFFF0000).view("float32")
    data = np.zeros((1024, 32), "float32")
    data[:, 0], data[:, 1] = numbers, 2.0
    for activation in ("silu", "gelu_tanh"):
        model, _ = gated((1024, 16, 32), Kind(8, rounding=8), on, activation)
        packed, scales = (np.array(one) for one in model.parameters)
        packed[...], scales[...] = 128, 1.0
        # Panel, group, step, output and place: gate has the first element, up the second.
        packed[0, 0, 0, :, 0], packed[1, 0, 0, :, 1] = 129, 129
        space = space_for(task_of(model), on.hardware)
        values = {"vectors": 1, "rows": 2, "depth": 1}
        function = scheduled_function(space.apply(space.candidate(values, "test")))
        output = tvm.runtime.tensor(np.zeros((1024, 16), "float32"))
        cases.callable_here(function)(*map(tvm.runtime.tensor, (data, packed, scales)), output)
        exact = numbers.astype("float64")
        with np.errstate(over="ignore", invalid="ignore"):
            wanted = 2 * ACTIVATIONS[activation][1](exact)
        found = output.numpy()[:, 0]
        # Data is no number where infinities meet weights of 0.
        np.testing.assert_allclose(found[:-2], wanted[:-2], rtol=1e-6, atol=1e-12)
        assert np.isnan(found[-1])


@in_turn("kind, form", KINDS, [((32, 64, 192), 1), ((64, 128, 64), 2), ((96, 256, 128), 1)])
def test_what_the_next_product_reads_is_in_tiles_already(
    kind: str, form: tuple[tuple[int, int, int], int]
) -> None:
    sizes, threads = form
    on = cases.board(threads)
    model, weight = gated(sizes, rounded("int8"), on, down=rounded(kind))
    gate, behind = (one for one in model.tasks if "dense" in one.name)
    spaces = [space_for(task, on.hardware, threads) for task in (gate, behind)]
    between = gate.function.params[-1]
    if not fits(KINDS[kind]):
        assert [space.rule.name for space in spaces] == ["gated_tiles", "quantised"]
        assert str(between.dtype) == "float32"
        return
    assert [space.rule.name for space in spaces] == ["gated_tiles", "quantised_tiles"]
    data = np.random.default_rng(5).normal(size=(sizes[0], sizes[2])).astype("float32")
    value = tvm.runtime.tensor(data)
    for space, parameters in zip(spaces, (model.parameters[:2], model.parameters[2:]), strict=True):
        values = space.sample(random.Random(len(kind)))
        function = scheduled_function(space.apply(space.candidate(values, "test")))
        shape, dtype = tuple(map(int, function.params[-1].shape)), str(function.params[-1].dtype)
        output = tvm.runtime.empty(shape, dtype)
        cases.callable_here(function)(value, *map(tvm.runtime.tensor, parameters), output)
        value = output
    made, _ = expected(data, weight, "silu")
    wanted = made @ dequantised(weight_of(sizes[2], sizes[1], rounded(kind)), KINDS[kind].options).T
    assert (int(between.shape[-1]), str(between.dtype)) == (32, "bfloat16")
    found = value.numpy()[:, : sizes[2]]
    assert np.sqrt(np.mean((found - wanted) ** 2)) <= 6e-3 * np.sqrt(np.mean(wanted**2))


def test_unscheduled_functions_compute_the_same() -> None:
    """Those that a wrong program is found by."""
    on = cases.board()
    sizes = (32, 64, 64)
    model, weight = gated(sizes, rounded("int4"), on, down=rounded("int8"))
    data = np.random.default_rng(6).normal(size=(sizes[0], sizes[2])).astype("float32")
    made, _ = expected(data, weight, "silu")
    wanted = made @ dequantised(weight_of(sizes[2], sizes[1], rounded("int8")), KINDS["int8"].options).T
    found = run(model, {}, data)
    # Rows are rounded to bytes here.
    assert np.sqrt(np.mean((found - wanted) ** 2)) <= 2e-2 * np.sqrt(np.mean(wanted**2))


@pytest.mark.parametrize("kind", ["int4", "Q4_K"])
def test_a_product_that_keeps_16_bits_reads_rows(kind: str) -> None:
    on = cases.board()
    model, _ = gated((32, 64, 64), rounded("int8"), on, down=KINDS[kind])
    gate, _ = (one for one in model.tasks if "dense" in one.name)
    assert str(gate.function.params[-1].dtype) == "float32"


@pytest.mark.parametrize(
    ("rows", "columns", "activation", "options"),
    [
        (16, 64, "silu", {}),
        (36, 64, "silu", {}),
        (64, 40, "silu", {}),
        (64, 64, "relu", {}),
        (64, 64, "silu", {"swapped": True}),
        (64, 64, "silu", {"kept": True}),
    ],
)
def test_other_products_keep_their_activation_apart(
    rows: int, columns: int, activation: str, options: dict[str, bool]
) -> None:
    on = cases.board()
    model, _ = gated((rows, columns, 64), rounded("int4"), on, activation, **options)
    assert space_for(task_of(model), on.hardware).rule.name in ("quantised", "quantised_tiles")


def test_processors_without_these_registers_keep_it_apart() -> None:
    on = cases.board(without=("amx_tile", "amx_int8", "amx_bf16"))
    model, _ = gated((64, 64, 64), rounded("int4"), on)
    assert space_for(task_of(model), on.hardware).rule.name == "quantised"
