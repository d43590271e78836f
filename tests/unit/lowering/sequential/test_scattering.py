"""Scatters as a function of ours, beside NumPy and ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from tvm import relax, tirx

from host.build import default_schedule
from host.lowering import lower
from host.model import LoweredModel
from tests.unit.importers.harness import graph, load, value
from tests.unit.lowering.harness import board, functions, lowered, normal, run_lowered
from tests.unit.schedules.scatter_cases import COMBINED

op = relax.op


def _scattered(
    data: np.ndarray, indices: np.ndarray, updates: np.ndarray, axis: int, kind: str
) -> np.ndarray:
    """One update after another."""
    made = data.copy()
    for place in np.ndindex(indices.shape):
        target = (*place[:axis], indices[place], *place[axis + 1 :])
        # Products of small integers wrap around.
        with np.errstate(over="ignore"):
            made[target] = COMBINED[kind](made[target], updates[place])
    return made


def _whole(shape: tuple[int, ...], low: int, high: int) -> np.ndarray:
    return np.random.default_rng([*shape]).integers(low, high, shape)


@pytest.mark.parametrize("kind", COMBINED)
@pytest.mark.parametrize("dtype", ["float32", "int64", "int8"])
def test_updates_of_one_place_are_combined_in_order(kind: str, dtype: str) -> None:
    cases = [((5, 7), 11, 0), ((5, 7), 9, 1), ((2, 6, 70), 9, 1), ((40,), 25, 0)]
    inputs: list[np.ndarray] = []
    for shape, count, axis in cases:
        covered = (*shape[:axis], count, *shape[axis + 1 :])
        indices = _whole(covered, -shape[axis], shape[axis])
        inputs += [_whole(shape, -3, 4).astype(dtype), indices, _whole(covered, -3, 4).astype(dtype)]

    def build(bb, *inputs):
        given = [inputs[place : place + 3] for place in range(0, len(inputs), 3)]
        return relax.Tuple(
            [
                bb.emit(op.scatter_elements(*three, axis, kind))
                for three, (_, _, axis) in zip(given, cases, strict=True)
            ]
        )

    model = lowered(build, inputs)
    assert functions(model) == ["fused_scatter"] * len(cases)
    for place, found in enumerate(run_lowered(model, inputs)):
        data, indices, updates = inputs[3 * place : 3 * place + 3]
        wanted = _scattered(data, indices, updates, cases[place][2], kind)
        np.testing.assert_array_equal(found, wanted, err_msg=str(cases[place]))


@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_extremes_are_nan_where_an_update_or_the_tensor_is(kind: str, dtype: str) -> None:
    data = np.array([np.nan, 1, 2, 3, -np.inf, np.inf], dtype)
    indices = np.array([0, 1, 1, 2, 2, 3, 3, 4, 5])
    updates = np.array([5, np.nan, 7, 9, np.nan, -4, 8, -np.inf, np.inf], dtype)
    model = lowered(lambda bb, x, i, u: op.scatter_elements(x, i, u, 0, kind), [data, indices, updates])
    found = run_lowered(model, [data, indices, updates])[0]
    third = 8 if kind == "max" else -4
    np.testing.assert_array_equal(found, np.array([np.nan] * 3 + [third, -np.inf, np.inf], dtype))


def _by_row(kind: str, nodes: int, edges: int, width: int) -> LoweredModel:
    """A row of updates for each index, as graph networks add messages to nodes."""

    def build(bb, x, index, u):
        rows = bb.emit(op.broadcast_to(index, (edges, width)))
        rows = bb.emit(op.minimum(rows, relax.const(nodes - 1, "int64")))
        return op.scatter_elements(x, rows, u, 0, kind)

    index = np.zeros((edges, 1), np.int64)
    return lowered(build, [normal(nodes, width), index, normal(edges, width)])


def _function(model: LoweredModel) -> tirx.PrimFunc:
    name = next(one for one in model.module.functions if "scatter" in one.name_hint)
    return model.module[name]


@pytest.mark.parametrize("kind", ["add", "max"])
def test_an_index_that_is_repeated_along_a_row_is_read_once(kind: str) -> None:
    model = _by_row(kind, 9, 31, 67)
    places = [int(size) for size in _function(model).params[1].shape]
    assert places == [1, 31, 1, 1]
    data, updates, index = normal(9, 67), normal(31, 67, seed=2), _whole((31, 1), 0, 12)
    found = run_lowered(model, [data, index, updates])[0]
    rows = np.broadcast_to(np.minimum(index, 8), (31, 67))
    np.testing.assert_allclose(found, _scattered(data, rows, updates, 0, kind), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["update", "add"])
def test_no_updates_leave_the_tensor_as_it_is(kind: str) -> None:
    data = normal(3, 8)
    none = np.empty((3, 0), np.int64), np.empty((3, 0), np.float32)
    model = lowered(lambda bb, x, i, u: op.scatter_elements(x, i, u, 1, kind), [data, *none])
    np.testing.assert_array_equal(run_lowered(model, [data, *none])[0], data)
    none = np.empty((0, 1), np.int64), np.empty((0, 8), np.float32)
    model = lowered(lambda bb, x, i, u: op.scatter_nd(x, i, u, kind), [data, *none])
    np.testing.assert_array_equal(run_lowered(model, [data, *none])[0], data)


def test_columns_are_shared_among_threads() -> None:
    assert "T.parallel" in default_schedule(_function(_by_row("add", 500, 4000, 128))).script()
    assert "T.parallel" not in default_schedule(_function(_by_row("add", 500, 4000, 64))).script()


@pytest.mark.parametrize("kind", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("operator", ["ScatterElements", "ScatterND"])
def test_scatters_of_files_are_those_of_onnx_runtime(tmp_path: Path, operator: str, kind: str) -> None:
    path, data = tmp_path / "m.onnx", normal(6, 5, 4)
    if operator == "ScatterND":
        indices, updates, attributes = (
            np.stack([_whole((8,), -6, 6), _whole((8,), -5, 5)], 1),
            normal(8, 4),
            {},
        )
    else:
        indices, updates, attributes = _whole((6, 9, 4), -5, 5), normal(6, 9, 4), {"axis": 1}
    node = helper.make_node(operator, ["x", "i", "u"], ["y"], reduction=kind, **attributes)
    inputs = {"x": data, "i": indices, "u": updates}
    onnx.save(graph([node], inputs, [value("y", data)]), path)
    model = lower(load(path, golden_cases=1), board())
    assert any("scatter" in name for name in functions(model))
    found = run_lowered(model, list(inputs.values()))[0]
    wanted = onnxruntime.InferenceSession(str(path)).run(None, inputs)[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
