"""Units of networks that shuffle channels, as whole models."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tvm import relax

from host.model import LoweredModel
from tests.unit.lowering.harness import check, functions, normal, weight

op = relax.op

Shuffle = Callable[[relax.BlockBuilder, relax.Expr, relax.Expr], relax.Expr]


def shuffled(bb: relax.BlockBuilder, x: relax.Expr, groups: int) -> relax.Expr:
    batch, channels, *image = (int(size) for size in x.ty.shape)
    apart = bb.emit(op.reshape(x, (batch, groups, channels // groups, *image)))
    moved = bb.emit(op.permute_dims(apart, (0, 2, 1, 3, 4)))
    return bb.emit(op.reshape(moved, (batch, channels, *image)))


def pointwise(bb: relax.BlockBuilder, x: relax.Expr, after: int, groups: int = 1) -> relax.Expr:
    before = int(x.ty.shape[1])
    made = bb.emit(op.nn.conv2d(x, weight(after, before // groups, 1, 1), groups=groups))
    return bb.emit(op.nn.relu(bb.emit(op.add(made, weight(1, after, 1, 1)))))


def each(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    channels = int(x.ty.shape[1])
    return bb.emit(op.nn.conv2d(x, weight(channels, 1, 3, 3), padding=1, groups=channels))


def by_views(bb: relax.BlockBuilder, first: relax.Expr, second: relax.Expr) -> relax.Expr:
    return shuffled(bb, bb.emit(op.concat([first, second], axis=1)), 2)


def by_stacking(bb: relax.BlockBuilder, first: relax.Expr, second: relax.Expr) -> relax.Expr:
    return bb.emit(op.reshape(bb.emit(op.stack([first, second], axis=2)), (1, 24, 6, 6)))


@pytest.mark.parametrize("shuffle", [by_views, by_stacking])
def test_units_with_halves_join_what_they_read(shuffle: Shuffle) -> None:
    def network(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        x = pointwise(bb, x, 24)
        for _ in range(3):
            halves = bb.emit(op.split(x, 2, axis=1))
            first, second = bb.emit(halves[0]), bb.emit(halves[1])
            made = pointwise(bb, each(bb, pointwise(bb, second, 12)), 12)
            x = shuffle(bb, first, made)
        return bb.emit(op.mean(pointwise(bb, x, 8), [2, 3]))

    model = check(network, [normal(1, 3, 6, 6)])
    # The image with channels last, the first half, and what two of three convolutions and the last one read.
    joined = {"slice_slice_concat", "slice_slice_slice_concat"}
    assert moves(model) == {"transpose", "slice", *joined}


def test_groups_take_in_a_shuffle_between_them() -> None:
    def network(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        x = pointwise(bb, x, 24)
        for _ in range(2):
            made = each(bb, shuffled(bb, pointwise(bb, x, 12, 3), 3))
            x = bb.emit(op.nn.relu(bb.emit(op.add(x, pointwise(bb, made, 24, 3)))))
        return bb.emit(op.mean(pointwise(bb, x, 8), [2, 3]))

    model = check(network, [normal(1, 3, 6, 6)])
    # The image with channels last, and one transpose for each shuffle.
    assert moves(model) == {"transpose"}
    assert sum(task.weight for task in model.tasks if "transpose" in task.name) == 3


def test_the_weight_before_a_shuffle_takes_it_in_where_its_order_is_returned() -> None:
    def network(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        return shuffled(bb, pointwise(bb, x, 60), 5)

    model = check(network, [normal(1, 3, 6, 6)])
    # The image with channels last, and the result with channels first.
    assert moves(model) == {"transpose"}
    assert sum(task.weight for task in model.tasks if "transpose" in task.name) == 2


def test_a_shuffle_of_what_no_weight_makes_is_written() -> None:
    def network(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        made = pointwise(bb, x, 60)
        return bb.emit(op.add(made, shuffled(bb, bb.emit(op.add(made, each(bb, made))), 5)))

    model = check(network, [normal(1, 3, 6, 6)])
    assert sum(task.weight for task in model.tasks if "transpose" in task.name) == 3


def test_a_gate_of_squeezed_channels_follows_them() -> None:
    def network(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        x = shuffled(bb, bb.emit(op.add(each(bb, pointwise(bb, x, 64)), each(bb, pointwise(bb, x, 64)))), 2)
        gate = bb.emit(op.sigmoid(pointwise(bb, bb.emit(op.mean(x, [2, 3], keepdims=True)), 64)))
        return bb.emit(op.mean(pointwise(bb, bb.emit(op.multiply(x, gate)), 8), [2, 3]))

    assert moves(check(network, [normal(1, 3, 6, 6)])) == {"transpose"}


def test_halves_by_number_of_a_dimension_are_slices() -> None:
    def network(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        x = pointwise(bb, x, 24)
        for _ in range(2):
            apart = bb.emit(op.reshape(x, (12, 2, 36)))
            both = bb.emit(op.reshape(bb.emit(op.permute_dims(apart, (1, 0, 2))), (2, 1, 12, 6, 6)))
            first, second = (bb.emit(op.take(both, relax.const(i, "int64"), axis=0)) for i in range(2))
            x = bb.emit(op.concat([first, pointwise(bb, each(bb, pointwise(bb, second, 12)), 12)], axis=1))
        return bb.emit(op.mean(pointwise(bb, x, 8), [2, 3]))

    model = check(network, [normal(1, 3, 6, 6)])
    # Every second channel of a result is the first or the last half of what is made.
    assert {name for name in moves(model) if "slice" not in name} == {"transpose"}


def moves(model: LoweredModel) -> set[str]:
    """Functions that only move elements."""
    movement = {"slice", "concat", "transpose", "take"}
    names = {name.removeprefix("fused_") for name in functions(model)}
    return {name for name in names if set(name.split("_")) <= movement}
