"""What is equal is computed and stored once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import relax

from host.lowering.sharing.equal_arrays import EqualArrays
from tests.unit.lowering.harness import calls, check, normal, weight

STEPS, UNITS = 3, 32


def test_weights_of_all_steps_are_one_parameter() -> None:
    def steps(builder: Any, state: Any) -> Any:
        for _ in range(STEPS):
            # As exporters write them: of each use a constant of its own, in another order than it is read.
            turned = relax.op.permute_dims(weight(UNITS, UNITS))
            product = builder.emit(relax.op.matmul(state, turned))
            state = builder.emit(relax.op.tanh(relax.op.add(product, relax.const(normal(UNITS)))))
        return state

    model = check(steps, [normal(1, UNITS, seed=3)])
    assert sorted(parameter.size for parameter in model.parameters) == [UNITS, UNITS * UNITS]
    assert calls(model) == STEPS


def test_equal_products_are_computed_once() -> None:
    def products(builder: Any, data: Any) -> Any:
        first, second = (builder.emit(relax.op.matmul(data, weight(UNITS, UNITS))) for _ in range(2))
        return relax.op.add(relax.op.tanh(first), relax.op.exp(second))

    model = check(products, [normal(4, UNITS, seed=3)])
    assert [parameter.size for parameter in model.parameters] == [UNITS * UNITS]


def test_weights_that_differ_in_one_element_stay_apart() -> None:
    first = normal(UNITS, UNITS)
    second = first.copy()
    second[1, 2] += 1.0

    def products(builder: Any, data: Any) -> Any:
        made = [builder.emit(relax.op.matmul(data, relax.const(one))) for one in (first, second)]
        return relax.op.subtract(*made)

    model = check(products, [normal(4, UNITS, seed=3)])
    assert len(model.parameters) == 2


def placed(*arrays: np.ndarray) -> list[int]:
    known = EqualArrays()
    return [known.place(array) for array in arrays]


def test_equal_arrays_share_a_place_whatever_their_layout() -> None:
    array = normal(70, 50)
    assert placed(array, array.copy(), np.asfortranarray(array), array.T.copy().T) == [0, 0, 0, 0]


def test_bytes_decide_and_not_numbers() -> None:
    not_a_number = np.full(200, np.nan, np.float32)
    zeros = np.zeros(200, np.float32)
    assert placed(not_a_number, not_a_number.copy(), zeros, -zeros, zeros.copy()) == [0, 0, 1, 2, 1]


def test_shape_and_type_are_part_of_the_content() -> None:
    zeros = np.zeros((4, 6), np.float32)
    assert placed(zeros, zeros.reshape(6, 4), zeros.view(np.int32), zeros.astype(np.float16)) == [0, 1, 2, 3]


@pytest.mark.parametrize("place", [1, 5_000_001, -2])
def test_every_element_is_compared(place: int) -> None:
    array = np.zeros(6_000_000, np.uint8)
    other = array.copy()
    other[place] = 1
    assert placed(array, other, other.copy()) == [0, 1, 1]


def test_scalars_and_empty_arrays_have_places() -> None:
    empty, scalar = np.zeros((0, 3), np.float32), np.array(2.0)
    assert placed(empty, scalar, empty.copy(), scalar.copy(), np.array(3.0)) == [0, 1, 0, 1, 2]


def test_an_array_that_may_not_share_is_added() -> None:
    known, array = EqualArrays(), normal(8)
    assert [known.place(array), known.place(array, lambda index: False), known.place(array)] == [0, 1, 0]
