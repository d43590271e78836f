"""Scatters of constants into constants."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from tests.unit.lowering.harness import check, functions, normal

op = relax.op


def _table(indices: np.ndarray, reduction: str = "update"):
    def build(bb, x):
        zeros = relax.const(np.zeros((4, 5), "float32"))
        updates = relax.const(np.arange(indices.size, dtype="float32").reshape(indices.shape))
        table = bb.emit(op.scatter_elements(zeros, relax.const(indices), updates, 1, reduction))
        return op.add(x, table)

    return build


@pytest.mark.parametrize("indices", [[[0, 1]] * 4, [[4, -1]] * 4, [[3]] * 4])
def test_a_table_of_constants_is_a_constant(indices: list[list[int]]) -> None:
    model = check(_table(np.array(indices, "int64")), [normal(4, 5)])
    assert functions(model) == ["fused_add"]


@pytest.mark.parametrize(
    ("indices", "reduction"), [([[1, 2]] * 4, "add"), ([[1, 2]] * 2, "update")], ids=["sums", "part"]
)
def test_other_scatters_stay_scatters(indices: list[list[int]], reduction: str) -> None:
    found = functions(check(_table(np.array(indices, "int64"), reduction), [normal(4, 5)]))
    assert any("scatter" in name for name in found)


def _box(begin: tuple[int, ...], sizes: tuple[int, ...]) -> np.ndarray:
    """Indices of each element of a box, as exporters of torch write a slice."""
    grid = np.meshgrid(*(np.arange(b, b + s) for b, s in zip(begin, sizes, strict=True)), indexing="ij")
    return np.stack(grid, axis=-1).astype("int64")


def _written(indices: np.ndarray, updates: tuple[int, ...], reduction: str = "update"):
    def build(bb, x, part):
        scatter = bb.emit(op.scatter_nd(x, relax.const(indices), op.reshape(part, updates), reduction))
        return op.multiply(scatter, relax.const(2.0, "float32"))

    return build


@pytest.mark.parametrize(
    ("begin", "sizes"),
    [((0, 0, 0), (2, 4, 2)), ((0, 1, 3), (2, 2, 2)), ((1,), (1,)), ((0, 2), (2, 2)), ((0, 0, 0), (2, 4, 5))],
    ids=["last columns stay", "inner box", "one of the first axis", "rows", "everything"],
)
def test_a_box_that_is_written_is_a_concatenation(begin: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    shape = (*sizes, *(2, 4, 5)[len(sizes) :])
    model = check(_written(_box(begin, sizes), shape), [normal(2, 4, 5), normal(*shape)])
    assert not any("scatter" in name for name in functions(model))


@pytest.mark.parametrize(
    "indices",
    [_box((0, 0, 0), (2, 4, 5))[..., ::2, :], _box((0, 0, 0), (2, 4, 3))[::-1], np.array([[[0], [0]]])],
    ids=["every other", "backwards", "twice the same"],
)
def test_other_places_stay_scatters(indices: np.ndarray) -> None:
    shape = (*indices.shape[:-1], *(2, 4, 5)[indices.shape[-1] :])
    model = check(_written(indices, shape), [normal(2, 4, 5), normal(*shape)])
    assert any("scatter" in name for name in functions(model))


def test_a_scatter_of_constants_by_places_is_a_constant() -> None:
    def build(bb, x):
        table = relax.const(np.zeros((4, 5), "float32"))
        for column in (0, 3):
            indices = _box((0, column), (4, 2))
            updates = relax.const(np.full((4, 2), column + 1.0, "float32"))
            table = bb.emit(op.scatter_nd(table, relax.const(indices), updates))
        return op.add(x, table)

    assert functions(check(build, [normal(4, 5)])) == ["fused_add"]
