"""Products of many rows with quantised weights in AMX tiles: what they compute, for every form of weights."""

from __future__ import annotations

import random

import numpy as np
import pytest
import tvm

from host.model import LoweredModel, Task
from host.schedules import scheduled_function, space_for
from host.schedules.design import DesignSpace
from tests.scheduling.repetitions import in_turn
from tests.unit.lowering.numeric_types.test_quantised_weights import KINDS, Kind, product
from tests.unit.schedules.cpu.tiles import tile_cases as cases


def task_of(model: LoweredModel) -> Task:
    """The product's task."""
    [task] = [one for one in model.tasks if "dense" in one.name]
    return task


def made_of(space: DesignSpace, values: dict[str, int], model: LoweredModel, data: np.ndarray) -> np.ndarray:
    """The product as a program computes it."""
    function = scheduled_function(space.apply(space.candidate(values, "test")))
    kernel = cases.callable_here(function)
    shape = tuple(map(int, function.params[-1].shape))
    output = tvm.runtime.tensor(np.full(shape, 77, "float32"))
    kernel(*(tvm.runtime.tensor(one) for one in (data, *model.parameters)), output)
    return np.asarray(output.numpy())


def rounded(name: str) -> Kind:
    """A form of weights whose activations are rounded to bytes."""
    return KINDS[name]._replace(rounding=8)


def fits(kind: Kind) -> bool:
    """Whether groups are whole tiles."""
    return kind.group % 32 == 0


@in_turn("kind, form", KINDS, [((32, 64, 192), 1), ((64, 40, 64), 2), ((96, 48, 1280), 1)])
def test_random_programs_compute_the_product(kind: str, form: tuple[tuple[int, int, int], int]) -> None:
    (rows, columns, depth), threads = form
    on = cases.board(threads)
    model, weight = product(rows, columns, depth, rounded(kind), on)
    space = space_for(task_of(model), on.hardware, threads)
    assert space.rule.name == ("quantised_tiles" if fits(KINDS[kind]) else "quantised")
    if not fits(KINDS[kind]):
        return
    data = np.random.default_rng(1).normal(size=(rows, depth)).astype("float32")
    data[0, :32], data[-1, -1] = 0.0, 1e4
    values = space.sample(random.Random(rows + len(kind)))
    made = made_of(space, values, model, data)[:, :columns]
    wanted = data.astype("float64") @ weight.T.astype("float64")
    # Both operands are rounded to eight bits of their own.
    bound = np.abs(data) @ np.abs(weight).T * 2.0**-7 + 1e-5 * np.abs(wanted).max()
    # Of weights with zero points and minima, it is their parts that are rounded.
    assert (np.abs(made - wanted) <= bound).all()
    assert np.sqrt(np.mean((made - wanted) ** 2)) <= 3e-3 * np.sqrt(np.mean(wanted**2))


@in_turn("kind, form", KINDS, [((32, 64, 192), 1), ((64, 48, 384), 2), ((96, 256, 256), 1)])
def test_operands_that_keep_16_bits_are_two_numbers(
    kind: str, form: tuple[tuple[int, int, int], int]
) -> None:
    (rows, columns, depth), threads = form
    on = cases.board(threads)
    model, weight = product(rows, columns, depth, KINDS[kind]._replace(rounding=16), on)
    space = space_for(task_of(model), on.hardware, threads)
    if not fits(KINDS[kind]):
        assert space.rule.name == "quantised"
        return
    assert space.rule.name == "quantised_tiles"
    data = np.random.default_rng(2).normal(size=(rows, depth)).astype("float32")
    data[0, :32], data[-1, -1] = 0.0, 1e4
    values = space.sample(random.Random(rows + len(kind)))
    made = made_of(space, values, model, data)[:, :columns]
    wanted = data.astype("float64") @ weight.T.astype("float64")
    assert (np.abs(made - wanted) <= np.abs(data) @ np.abs(weight).T * 2.0**-14 + 1e-6).all()
    # Rounding one of the operands to 8 bits would be wrong by a hundred times this.
    assert np.sqrt(np.mean((made - wanted) ** 2)) <= 2e-5 * np.sqrt(np.mean(wanted**2))


def test_blocks_take_turns_in_two_places() -> None:
    """Whether a block has one part of the depth or an odd or even number of them, and one panel or two."""
    on = cases.board()
    model, weight = product(64, 96, 384, rounded("int4"), on)
    space = space_for(task_of(model), on.hardware)
    data = np.random.default_rng(3).normal(size=(64, 384)).astype("float32")
    wanted = data @ weight.T
    for wide, tall, depth in ((6, 2, 12), (6, 1, 4), (3, 2, 6), (2, 2, 12)):
        made = made_of(space, {"vectors": wide, "rows": tall, "depth": depth}, model, data)
        np.testing.assert_allclose(made, wanted, atol=1e-2 * np.abs(wanted).max())


@pytest.mark.parametrize(("rows", "rounding"), [(36, 8), (16, 8), (16, 16)])
def test_rows_of_no_whole_tiles_are_in_none(rows: int, rounding: int) -> None:
    on = cases.board()
    model, _ = product(rows, 64, 512, Kind(4, rounding=rounding), on)
    assert space_for(task_of(model), on.hardware).rule.name == "quantised"


@pytest.mark.parametrize("rounding", [8, 16])
def test_rows_whose_sums_the_stack_does_not_hold_are_in_none(rounding: int) -> None:
    """Between parts of the depth, the sums of all rows lie on the stack: 131072 rows ended in a crash."""
    on = cases.board()
    for rows, rule in ((8192, "quantised_tiles"), (8192 + 32, "quantised")):
        model, _ = product(rows, 16, 64, Kind(4, rounding=rounding), on)
        assert space_for(task_of(model), on.hardware).rule.name == rule
