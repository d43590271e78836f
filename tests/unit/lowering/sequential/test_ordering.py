"""TopK and sorts beside a stable sort of Python's, and beside ONNX Runtime."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from tvm import relax

from host.build import default_schedule
from host.dynamic.template import unify
from host.lowering import lower
from tests.unit.importers.harness import graph, load, value
from tests.unit.lowering.harness import board, functions, lowered, normal, run_lowered, run_lowered_cases

op = relax.op
FLOATS = ["float32", "float64", "float16"]
TYPES = [*FLOATS, "int64", "uint64", "int32", "uint32", "int16", "int8", "uint8", "bool"]


def _first(data: np.ndarray, count: int, axis: int, largest: bool) -> tuple[np.ndarray, np.ndarray]:
    """Values and places by a stable sort, NaN above all numbers."""

    def key(number: object) -> tuple[int, float | int]:
        number = number.item()  # type: ignore[attr-defined]
        above, number = (1, 0) if isinstance(number, float) and math.isnan(number) else (0, number)
        return (-above, -number) if largest else (above, number)

    rows = np.moveaxis(data, axis, -1)
    places = np.empty((*rows.shape[:-1], count), np.int64)
    for row in np.ndindex(rows.shape[:-1]):
        places[row] = sorted(range(rows.shape[-1]), key=lambda place: key(rows[row][place]))[:count]
    places = np.moveaxis(places, -1, axis)
    return np.take_along_axis(data, places, axis), places


def _drawn(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Elements with many equal ones, and with the ends of the type."""
    rng = np.random.default_rng([len(dtype), *shape])
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.startswith("float"):
        data = rng.integers(-90, 90, shape).astype(dtype) / 4
        special = (np.nan, -np.nan, -0.0, 0.0, np.inf, -np.inf, np.finfo(dtype).max)
        for number, one in enumerate(special):
            data.reshape(-1)[number :: 37 + number] = one
        return data.astype(dtype)
    ends = np.iinfo(dtype)
    data = rng.integers(ends.min, ends.max, shape, dtype, endpoint=True)
    data.reshape(-1)[::5], data.reshape(-1)[1::7] = ends.min, ends.max
    return data


def _top(count: int, axis: int, largest: bool, dtype: str = "int64"):
    def build(bb, x):
        found = bb.emit(op.topk(x, count, axis, "both", largest, dtype))
        return relax.Tuple([relax.TupleGetItem(found, number) for number in range(2)])

    return build


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("largest", [True, False])
def test_the_first_few_are_those_of_a_stable_sort(largest: bool, dtype: str) -> None:
    # Few of a row, all of a short one, many with several sorts on the way, and all of a long one.
    cases = [((3, 130), 4, 1), ((2, 31, 3), 31, 1), ((2, 2100), 40, 1), ((777,), 777, 0)]

    def build(bb, *inputs):
        return relax.Tuple(
            [_top(count, axis, largest)(bb, x) for x, (_, count, axis) in zip(inputs, cases, strict=True)]
        )

    inputs = [_drawn(shape, dtype) for shape, _, _ in cases]
    model = lowered(build, inputs)
    assert functions(model).count("fused_first_in_order") == len(cases)
    found = run_lowered(model, inputs)
    for data, (shape, count, axis), values, places in zip(
        inputs, cases, found[::2], found[1::2], strict=True
    ):
        wanted_values, wanted_places = _first(data, count, axis, largest)
        np.testing.assert_array_equal(places, wanted_places, err_msg=str(shape))
        np.testing.assert_array_equal(values, wanted_values, err_msg=str(shape))
        assert values.dtype == data.dtype


@pytest.mark.parametrize("dtype", ["bool", "float32", "uint64"])
@pytest.mark.parametrize(("shape", "count"), [((3, 0), 0), ((0, 5), 2)])
def test_results_without_elements(shape: tuple[int, ...], count: int, dtype: str) -> None:
    data = np.zeros(shape, dtype)
    values, places = run_lowered(lowered(_top(count, 1, True), [data]), [data])
    assert values.shape == places.shape == (shape[0], count)
    assert values.dtype == data.dtype and places.dtype == np.int64


@pytest.mark.parametrize("count", [7, 90])
def test_any_order_of_the_elements_is_sorted(count: int) -> None:
    rising = np.arange(3000, dtype=np.float32)
    cases = [rising, rising[::-1].copy(), np.zeros_like(rising), np.roll(rising, 1000)]
    model = lowered(_top(count, 0, True), [rising])
    found = run_lowered_cases(model, [[case] for case in cases])
    for case, (values, places) in zip(cases, found, strict=True):
        wanted_values, wanted_places = _first(case, count, 0, True)
        np.testing.assert_array_equal(places, wanted_places)
        np.testing.assert_array_equal(values, wanted_values)


@pytest.mark.parametrize("descending", [True, False])
def test_sorts_and_places_of_sorts_are_stable(descending: bool) -> None:
    data = _drawn((4, 90, 3), "float32")
    wanted = _first(data, 90, 1, descending)
    model = lowered(lambda bb, x: op.sort(x, 1, descending), [data])
    np.testing.assert_array_equal(run_lowered(model, [data])[0], wanted[0])
    model = lowered(lambda bb, x: op.argsort(x, 1, descending, "int32"), [data])
    places = run_lowered(model, [data])[0]
    assert places.dtype == np.int32
    np.testing.assert_array_equal(places, wanted[1])


@pytest.mark.parametrize(("count", "is_sorted"), [(3, 1), (60, 0), (200, 1), (1, 1)])
@pytest.mark.parametrize("largest", [0, 1])
def test_equal_elements_have_the_places_of_onnx_runtime(
    tmp_path: Path, count: int, is_sorted: int, largest: int
) -> None:
    path = tmp_path / "m.onnx"
    data = np.round(normal(3, 200) * 4) / 4
    node = helper.make_node("TopK", ["x", "k"], ["v", "p"], largest=largest, sorted=is_sorted)
    outputs = [value("v", np.empty((3, count), np.float32)), value("p", np.empty((3, count), np.int64))]
    onnx.save(graph([node], {"x": data}, outputs, {"k": np.array([count])}), path)
    model = lower(load(path, golden_cases=1), board())
    values, places = run_lowered(model, [data])
    wanted_values, wanted_places = onnxruntime.InferenceSession(str(path)).run(None, {"x": data})
    if is_sorted:
        np.testing.assert_array_equal(values, wanted_values)
        np.testing.assert_array_equal(places, wanted_places)
    else:
        np.testing.assert_array_equal(np.sort(places), np.sort(wanted_places))


def _function(count: int, size: int, rows: int = 16):
    model = lowered(_top(count, 1, True), [normal(rows, size)])
    name = next(one for one in model.module.functions if "first_in_order" in one.name_hint)
    return model.module[name]


def test_rows_are_shared_among_threads() -> None:
    assert "T.parallel" in default_schedule(_function(100, 8400)).script()
    assert "T.parallel" not in default_schedule(_function(100, 8400, rows=1)).script()


def test_rows_of_any_length_are_one_program() -> None:
    for few in (5, 50):
        template = unify({size: _function(few, size) for size in (59, 97, 151, 203)}, "first")
        assert template.slots
    assert unify({size: _function(size, size) for size in (37, 59, 97, 151)}, "sorted").slots
