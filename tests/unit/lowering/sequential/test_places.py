"""Places of the largest and smallest elements: of all types and numbers, by keys where a type has ranks."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from host.schedules.analysis import analyse
from tests.unit.lowering.harness import lowered, normal, run_lowered

op = relax.op
TYPES = ("float32", "float16", "int8", "uint8", "int16", "int32", "uint32", "int64", "uint64", "float64")


def _given(dtype: str) -> np.ndarray:
    """Rows with equal elements, with the ends of the type, and of one number alone."""
    kind = np.dtype(dtype)
    if kind.kind == "f":
        largest = float(np.finfo(kind).max)
        rows = [
            normal(40),
            np.round(normal(40, seed=2)),
            np.where(np.arange(40) % 7 == 3, np.nan, normal(40)),
            np.full(40, -np.inf),
            np.full(40, np.inf),
            np.tile([0.0, -0.0], 20),
            np.where(np.arange(40) < 20, largest, -np.inf),
            np.where(np.arange(40) < 20, -largest, np.inf),
            np.where(np.arange(40) == 11, -np.nan, np.inf),
        ]
    else:
        low, high = np.iinfo(kind).min, np.iinfo(kind).max
        drawn = np.random.default_rng(0).integers(low, high, 40, dtype=kind, endpoint=True)
        rows = [drawn, drawn // 2 * 2, np.full(40, low), np.full(40, high), np.arange(40) % 5]
    return np.array([row.astype(kind) for row in rows])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("largest", [True, False])
def test_places_are_those_of_numpy(dtype: str, largest: bool) -> None:
    given, name = _given(dtype), "argmax" if largest else "argmin"
    operator, numpy = getattr(op, name), getattr(np, name)
    for axis, keep in ((1, False), (1, True), (0, False), (0, True)):
        model = lowered(lambda bb, x, a=axis, k=keep: operator(x, a, k), [given])
        (found,) = run_lowered(model, [given])
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found, numpy(given, axis=axis, keepdims=keep))


@pytest.mark.parametrize("dtype", TYPES)
def test_rules_know_the_reductions(dtype: str) -> None:
    model = lowered(lambda bb, x: op.argmax(x, 1), [_given(dtype)])
    function = next(task.function for task in model.tasks if "argmax" in task.name)
    kinds = [stage.kind for stage in analyse(function).stages]
    assert kinds.count("reduction") == (2 if np.dtype(dtype).itemsize > 4 else 1)
