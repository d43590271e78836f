"""Places of extremes beside NumPy, and the functions that find them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import relax

from host.lowering import lower
from host.schedules import space_for
from tests.unit.lowering.harness import (
    blocks,
    board,
    functions,
    imported,
    lowered,
    normal,
    relax_module,
    run_lowered,
)

op = relax.op


def _places(name: str, axis: int, keepdims: bool = False) -> Any:
    return lambda builder, x: getattr(op, name)(x, axis, keepdims)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("last", [16, 37])
def test_places_are_found_by_two_reductions(name: str, axis: int, last: int) -> None:
    data = np.round(normal(9, 40, last), 1)  # with equal elements in most rows
    keepdims = axis == 1
    model = lowered(_places(name, axis, keepdims), [data])
    (found,) = run_lowered(model, [data])
    wanted = getattr(np, name)(data, axis, keepdims=keepdims)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, wanted)
    # What a row in memory is read for is one function.
    extreme = [] if axis == 2 else [f"fused_{name[3:]}"]
    assert functions(model) == [*extreme, "fused_place_cast"]


def test_an_extreme_that_the_model_wants_too_is_found_once() -> None:
    def build(builder: Any, x: Any) -> Any:
        return relax.Tuple([builder.emit(op.max(x, 0)), builder.emit(op.argmax(x, 0))])

    data = normal(60, 40)
    model = lowered(build, [data])
    assert sorted(functions(model)) == ["fused_max", "fused_place_cast"]
    largest, place = run_lowered(model, [data])
    np.testing.assert_array_equal(largest, data.max(0))
    np.testing.assert_array_equal(place, data.argmax(0))


def test_what_is_computed_before_is_computed_in_the_same_function() -> None:
    data = normal(60, 40)
    model = lowered(lambda bb, x: op.argmax(bb.emit(op.exp(x)), 1), [data])
    assert functions(model) == ["fused_exp_place_cast"]
    assert {"prologue", "max", "place"} <= blocks(model)
    np.testing.assert_array_equal(run_lowered(model, [data])[0], data.argmax(1))


def test_rows_in_memory_have_programs_with_vectors() -> None:
    model = lowered(_places("argmax", 1), [normal(64, 1001)])
    assert space_for(model.tasks[0], board().hardware, 1).rule.name == "rowwise"


def test_models_in_halves_have_one_function() -> None:
    data = np.round(normal(60, 40, 3), 1)
    model = lower(imported(relax_module(_places("argmax", 1), [data])), board(), half="float16")
    assert "fused_argmax" in functions(model)
    np.testing.assert_array_equal(run_lowered(model, [data])[0], data.argmax(1))


def test_few_elements_and_other_types_have_one_function() -> None:
    for data in (normal(8, 40), normal(60, 40).astype("float64"), np.arange(4800).reshape(60, 80) % 7):
        model = lowered(_places("argmax", 1), [data])
        assert functions(model) == ["fused_argmax"]
        (found,) = run_lowered(model, [data])
        np.testing.assert_array_equal(found, data.argmax(1))
