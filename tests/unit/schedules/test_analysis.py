"""What is read off a function: axes, steps in memory, kinds of stages."""

from __future__ import annotations

import pytest
from tvm import te, tirx

from host.errors import ScheduleError
from host.schedules.analysis import analyse
from host.schedules.cpu.common import step_sizes, vector_lanes
from host.schedules.workload import Move
from tests.unit.schedules import functions as fn


def test_convolution() -> None:
    workload = analyse(fn.convolution(9, 5, 32, 3, 2))
    assert [stage.kind for stage in workload.stages] == ["padding", "contraction", "injective"]
    anchor = workload.anchor_stage
    assert anchor.name == "conv2d"
    assert [axis.extent for axis in anchor.axes] == [1, 5, 5, 32, 3, 3, 5]
    assert [axis.reduce for axis in anchor.axes] == [False] * 4 + [True] * 3
    data, weights = anchor.reads
    # 11 x 11 x 5 padded input, stride 2: one output row is two input rows further.
    assert data.strides == (0, 110, 10, 0, 55, 5, 1)
    # Weights [2, 3, 3, 5, 16]: a step along the columns is one element inside a group of 16.
    assert weights.strides == (0, 0, 0, 1, 240, 80, 16)
    assert weights.groups[3] == (16, 720)
    assert [stage.write.type.name for stage in workload.stages] == ["float32"] * 3
    assert not data.argument
    assert weights.argument
    assert anchor.points * anchor.flops_per_point == 2 * 5 * 5 * 32 * 3 * 3 * 5


def test_groups_that_do_not_divide_an_axis() -> None:
    a = te.placeholder((4, 8), name="A")
    grouped = te.compute((14,), lambda j: a[j // 4, j % 4], name="grouped")
    [access] = analyse(te.create_prim_func([a, grouped])).anchor_stage.reads
    assert access.moves == ((Move(1, 4, (0, 1)), Move(4, 4, (1, 0))),)
    assert [access.offset(0, j) for j in range(14)] == [j // 4 * 8 + j % 4 for j in range(14)]
    assert access.groups == ((4, 8),)
    assert access.region({0: 3}) == (1, 3)
    assert access.region({0: 14}) == (4, 4)


def test_where_an_access_begins_and_what_fills_borders() -> None:
    padding, anchor, _ = analyse(fn.convolution(9, 5, 32, 3, 2)).stages
    assert padding.reads[0].origin == (0, -1, -1, 0)
    assert padding.fill == 0.0
    assert anchor.reads[0].origin == (0, 0, 0, 0)
    assert anchor.fill is None


def test_an_index_that_depends_on_data() -> None:
    a, i = te.placeholder((9, 8), name="A"), te.placeholder((5,), "int32", name="I")
    gathered = te.compute((5, 8), lambda j, k: a[i[j], k], name="gathered")
    places, rows = analyse(te.create_prim_func([a, i, gathered])).anchor_stage.reads
    assert not places.data_dependent
    assert rows.data_dependent
    assert rows.strides == (0, 0)
    assert rows.region({0: 1, 1: 1}) == (9, 8)


def test_softmax() -> None:
    workload = analyse(fn.softmax(2, 5, 64))
    assert [stage.kind for stage in workload.stages] == ["reduction", "injective", "reduction", "injective"]
    assert [stage.expensive for stage in workload.stages] == [False, True, False, False]


def test_lanes_divide_or_leave_a_short_remainder() -> None:
    board = fn.board()
    for columns, expected in ((64, 16), (24, 8), (37, 16), (8, 8), (3, 2)):
        stage = analyse(fn.batched(1, 4, columns, 8)).anchor_stage
        assert vector_lanes(stage, 2, board.hardware) == expected, columns


def test_steps_divide_unless_no_divisor_is_a_wanted_one() -> None:
    wanted = range(4, 7)
    assert step_sizes(28, 16, wanted) == (1, 2, 4, 7, 14)
    assert step_sizes(197, 16, wanted) == (1, 2, 3, 4, 5, 6, 7, 8, 12, 14, 16)
    assert step_sizes(49, 16, wanted) == (1, 2, 3, 4, 5, 6, 7, 8, 12, 14, 16)
    assert step_sizes(3, 16, wanted) == (1, 3)


def test_functions_that_are_no_loop_nest_are_refused() -> None:
    a = te.placeholder((4,), name="A")
    b = te.extern(
        (4,),
        [a],
        lambda ins, outs: tirx.call_packed("sort", ins[0].data, outs[0].data),
        name="sort",
        dtype="float32",
    )
    with pytest.raises(ScheduleError, match="sort"):
        analyse(te.create_prim_func([a, b]))
