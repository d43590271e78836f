"""Transposes: strips of rows, and the lines that the order of the loops fetches again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tvm import te

from host.schedules import scheduled_function, space_for
from host.schedules.cpu.reuse import fetched_lines, kept_share
from host.schedules.cpu.traffic import Loop
from host.schedules.workload import Access
from targets import MemoryLevel
from tests.unit.schedules import functions as fn

_L1 = MemoryLevel("L1", 32 << 10, 64e9, 1e-9, ways=2)


def _columns(rows: int, row: int, axes: tuple[int, int]) -> tuple[Access, Access]:
    """A matrix with rows of so many elements that is read by columns, and the transpose that is written."""
    function = fn.transpose((rows, row), (1, 0))
    stage = space_for(fn.task(function), fn.board().hardware).workload.stages[0]
    assert tuple(axis.extent for axis in stage.axes) == axes
    [read] = stage.reads
    return read, stage.write


def test_columns_whose_lines_stay_are_fetched_once() -> None:
    accesses = _columns(64, 80, (80, 64))
    nest = (Loop(0, 80), Loop(1, 64))
    assert fetched_lines(accesses, nest, _L1, indexed=True) == [64 * 5, 80 * 4]


def test_columns_that_do_not_fit_are_fetched_for_each_element_of_a_line() -> None:
    accesses = _columns(1000, 80, (80, 1000))
    nest = (Loop(0, 80), Loop(1, 1000))
    read, _ = fetched_lines(accesses, nest, _L1, indexed=True)
    assert read == 80 * 1000
    strips = (Loop(0, 5), Loop(1, 1000), Loop(0, 16))
    assert fetched_lines(accesses, strips, _L1, indexed=True)[0] == 5 * 1000


@pytest.mark.parametrize(("row", "kept"), [(1024, 0.0), (1040, 1.0)])
def test_columns_of_rows_a_page_long_share_few_sets(row: int, kept: float) -> None:
    read, _ = _columns(64, row, (row, 64))
    assert kept_share(read, {1: 64}, _L1) == kept
    nest = (Loop(0, row), Loop(1, 64))
    again = fetched_lines((read,), nest, _L1, indexed=True)[0] / (64 * row / 16)
    assert again == pytest.approx(1.0 if kept else 16.0)


def _scaled_transpose(shape: tuple[int, int]) -> tuple[object, np.ndarray, np.ndarray]:
    """A transpose and a product with a row, which is one task of two stages."""
    a = te.placeholder(shape, name="A")
    b = te.placeholder((shape[0],), name="B")
    moved = te.compute(shape[::-1], lambda i, j: a[j, i], name="moved")
    scaled = te.compute(shape[::-1], lambda i, j: moved[i, j] * b[j], name="scaled")
    generator = np.random.default_rng(1)
    x, y = generator.standard_normal(shape, "float32"), generator.standard_normal(shape[:1], "float32")
    return te.create_prim_func([a, b, scaled]), x, y


@pytest.mark.parametrize("shape", [(24, 20), (7, 42), (3, 9)])
@pytest.mark.parametrize("lanes", ["as they are", "none"])
def test_strips_of_an_inlined_transpose_compute_it(shape: tuple[int, int], lanes: str) -> None:
    function, x, y = _scaled_transpose(shape)
    board = fn.board("avx2")
    hardware = board.hardware if lanes != "none" else replace(board.hardware, vector_bits=32)
    space = space_for(fn.task(function), hardware)
    strips = space.rule.choices(space.workload, hardware)["strip"]
    assert len(strips) > 1
    for strip in strips:
        values = {"vectors": 1, "strip": strip}
        made = scheduled_function(space.apply(space.candidate(values, "test")))
        found = fn.run(made, [x, y], shape[::-1], board.tvm_target)
        np.testing.assert_array_equal(found, x.T * y)


def test_strips_are_no_longer_than_the_axis_needs() -> None:
    hardware = fn.board("avx2").hardware
    for rows, strips in ((48, (0, 4, 8, 16)), (6, (0, 4, 8)), (4, (0, 4))):
        space = space_for(fn.task(fn.transpose((40, rows), (1, 0))), hardware)
        assert space.rule.choices(space.workload, hardware)["strip"] == strips
        assert not space.legal({"vectors": 2, "strip": 4})
