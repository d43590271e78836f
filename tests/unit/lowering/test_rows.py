"""Softmax, normalisations, reductions and pooling."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from tvm import relax
from tvm.target import Target

from host.lowering.emit import emit
from host.lowering.fusion import fuse
from host.lowering.tasks import make_tasks
from host.schedules import space_for
from research.pretraining.operator_sampler import Draw
from targets import board_for, declared
from tests.unit.lowering.harness import blocks, calls, check, functions, lowered, normal, run_lowered, weight

op = relax.op


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_softmax(axis: int) -> None:
    check(lambda bb, x: op.nn.softmax(x, axis), [3 * normal(3, 5, 7)])
    check(lambda bb, x: op.nn.log_softmax(x, axis), [3 * normal(3, 5, 7)])


@pytest.mark.parametrize("any_length", [False, True])
@pytest.mark.parametrize("mask", [-1e9, -np.inf, float(np.finfo("float32").min)])
def test_softmax_of_rows_that_are_no_whole_number_of_vectors(mask: float, any_length: bool) -> None:
    """What makes a row whole vectors has no weight even where all scores are masked."""
    for size in (33, 37, 47, 50):
        scores = 3 * normal(2, 3, size)
        scores[..., 30:], scores[1, 1] = mask, mask
        model = check(lambda bb, x: op.nn.softmax(x, -1), [scores], any_length=any_length)
        # Only a function of any length has to copy the row.
        assert ("row" in blocks(model)) == any_length
    assert "row" not in blocks(
        check(lambda bb, x: op.nn.softmax(x, -1), [3 * normal(3, 40)], any_length=True)
    )


@pytest.mark.parametrize("mask", [-np.inf, -3.4028235e38, -1e9])
def test_masked_scores_get_no_weight(mask: float) -> None:
    scores = normal(2, 4, 6)
    masked = np.where(np.arange(6) < 4, 0.0, mask).astype("float32") * np.ones((1, 4, 6), "float32")

    def build(bb, x, m):
        return op.nn.softmax(bb.emit(op.add(x, m)))

    model = check(build, [scores, masked])
    (found,) = run_lowered(model, [scores, masked])
    assert (found[..., 4:] == 0.0).all()
    assert calls(model) == 1
    assert {"max", "exp", "sum", "reciprocal"} <= blocks(model)


@pytest.mark.parametrize("axes", [[-1], [-2, -1]])
def test_layer_norm_with_its_scale_and_what_follows_is_one_function(axes: list[int]) -> None:
    shape = (4, 6)[-len(axes) :]

    def build(bb, x, y):
        norm = op.nn.layer_norm(x, weight(*shape), weight(*shape, seed=3), axes=axes, epsilon=1e-6)
        return op.add(bb.emit(norm), y)

    x = 5 + 2 * normal(3, 4, 6)
    model = check(build, [x, normal(3, 4, 6, seed=1)])
    assert functions(model) == ["fused_layer_norm_multiply_add_add"]
    assert {"sum", "square_sum", "scale", "epilogue"} == blocks(model)


@pytest.mark.parametrize("any_length", [False, True])
@pytest.mark.parametrize("size", [35, 37])
def test_layer_norm_of_rows_that_are_no_whole_number_of_vectors(size: int, any_length: bool) -> None:
    """A mean far from zero: the elements that fill up the row must not count in the variance."""
    x = 50 + 2 * normal(3, 4, size)
    model = check(
        lambda bb, v: op.nn.layer_norm(v, weight(size), weight(size, seed=3), axes=[-1]),
        [x],
        atol=1e-4,
        any_length=any_length,
    )
    copied = {"row", "distance"} if any_length else set()
    assert {"sum", "square_sum", "scale", "epilogue"} | copied == blocks(model)


@pytest.mark.parametrize("groups", [1, 3, 6])
@pytest.mark.parametrize("spatial", [(7,), (4, 5)])
def test_normalisation_of_groups_of_channels(groups: int, spatial: tuple[int, ...]) -> None:
    axes = list(range(2, 2 + len(spatial)))
    x = 5 + 2 * normal(1 if groups == 6 else 2, 6, *spatial)

    def build(bb, v):
        return op.nn.group_norm(v, weight(6), weight(6, seed=3), groups, channel_axis=1, axes=axes)

    model = check(build, [x], atol=1e-4)
    assert functions(model) == ["fused_layer_norm_multiply_add"]
    if groups == 6:
        other = check(
            lambda bb, v: op.nn.instance_norm(v, weight(6), weight(6, seed=3), channel_axis=1, axes=axes), [x]
        )
        assert functions(other) == functions(model)


@pytest.mark.parametrize("shape", [(1, 6, 7), (1, 6, 2, 3, 5), (4, 6, 3, 5), (5, 6)])
def test_norm_of_channels_over_the_batch(shape: tuple[int, ...]) -> None:
    """As `torch.export` writes an InstanceNorm, whose batch is 1, and a BatchNorm without statistics."""
    model = check(
        lambda bb, v: op.nn.instance_norm(
            v, weight(6), weight(6, seed=3), channel_axis=1, axes=[0, *range(2, len(shape))]
        ),
        [5 + 2 * normal(*shape)],
        atol=1e-4,
    )
    assert not [name for name in functions(model) if "instance_norm" in name]


def test_residual_sum_before_a_norm_stays_with_the_product_that_makes_it() -> None:
    def build(bb, x):
        y = bb.emit(op.add(bb.emit(op.matmul(x, weight(8, 8))), x))
        return op.nn.layer_norm(y, weight(8), weight(8), axes=[-1])

    assert functions(check(build, [normal(5, 8)])) == [
        "fused_packed_dense_add",
        "fused_layer_norm_multiply_add",
    ]


@pytest.mark.parametrize("size", [6, 37])
def test_rms_norm(size: int) -> None:
    check(lambda bb, x: op.nn.rms_norm(x, weight(size), axes=[-1]), [normal(3, size)])


@pytest.mark.parametrize("any_length", [False, True])
def test_log_softmax_of_rows_that_are_no_whole_number_of_vectors(any_length: bool) -> None:
    scores = 3 * normal(2, 3, 37)
    scores[0, :, 30:] = -1e9
    check(lambda bb, x: op.nn.log_softmax(x, -1), [scores], any_length=any_length)


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "prod", "variance"])
@pytest.mark.parametrize(
    ("axis", "keepdims"), [([3], True), ([2, 3], False), ([2, 3], True), ([1, 2, 3], False)]
)
def test_reductions_of_last_axes_that_are_no_whole_number_of_vectors(
    name: str, axis: list[int], keepdims: bool
) -> None:
    """Far from zero on the side where a wrong value among the elements would be noticed."""
    x = normal(2, 3, 5, 37) + (-20 if name == "max" else 1 if name == "prod" else 20)
    model = check(lambda bb, v: getattr(op, name)(v, axis, keepdims), [x], rtol=1e-4)
    assert "if_then_else" in str(model.tasks[0].function)


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "prod", "variance", "std"])
@pytest.mark.parametrize(("axis", "keepdims"), [([1], False), ([0, 2], True), (None, False)])
def test_reductions(name: str, axis: list[int] | None, keepdims: bool) -> None:
    check(lambda bb, x: getattr(op, name)(x, axis, keepdims), [normal(3, 4, 5)], rtol=1e-4)


def test_integer_reductions() -> None:
    x = np.random.default_rng(0).integers(-9, 9, (3, 4)).astype("int32")
    check(lambda bb, v: op.sum(v, [1]), [x])
    check(lambda bb, v: op.max(v, [0]), [x])


POOLS = {
    "plain": dict(pool_size=(2, 2), strides=(2, 2)),
    "padded": dict(pool_size=(3, 3), strides=(2, 2), padding=(1, 1, 1, 1)),
    "one-sided": dict(pool_size=(3, 2), strides=(2, 1), padding=(0, 0, 1, 1)),
    "rounded up": dict(pool_size=(3, 3), strides=(2, 2), ceil_mode=True),
    "dilated": dict(pool_size=(2, 2), dilation=(2, 2)),
}


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_maximum_pooling(name: str, layout: str) -> None:
    x = normal(1, 3, 8, 7) - 3 if layout == "NCHW" else normal(1, 8, 7, 3) - 3
    check(lambda bb, v: op.nn.max_pool2d(v, layout=layout, **POOLS[name]), [x])


@pytest.mark.parametrize("name", [name for name in POOLS if name != "dilated"])
@pytest.mark.parametrize("count", [True, False])
def test_average_pooling(name: str, count: bool) -> None:
    if name == "rounded up" and count:
        # TVM divides by the whole window there; torch and ONNX by what lies inside input and padding.
        model = lowered(
            lambda bb, v: op.nn.avg_pool2d(v, count_include_pad=True, **POOLS[name]), [normal(1, 1, 4, 4)]
        )
        (found,) = run_lowered(model, [np.ones((1, 1, 4, 4), "float32")])
        np.testing.assert_allclose(found, 1.0, rtol=1e-6)
        return
    check(lambda bb, v: op.nn.avg_pool2d(v, count_include_pad=count, **POOLS[name]), [normal(1, 3, 8, 7)])


@pytest.mark.parametrize("pool", ["max", "average", "average with padding"])
@pytest.mark.parametrize("padding", [(0, 0), (1, 2)])
def test_windows_beyond_the_image_are_as_large_as_what_they_read(pool: str, padding: tuple[int, int]) -> None:
    """As nn.AvgPool2d(channels, ceil_mode=True) before a classifier: 64 by 64 for an image of 5 by 7."""
    pads = (padding[0], padding[0], padding[1], padding[1])
    same = dict(pool_size=(64, 64), strides=(64, 64), padding=pads, ceil_mode=True)

    def build(bb: Any, v: Any) -> Any:
        if pool == "max":
            return op.nn.max_pool2d(v, **same)
        return op.nn.avg_pool2d(v, count_include_pad=pool != "average", **same)

    x = normal(1, 3, 5, 7) - 3
    model = lowered(build, [x])
    assert sum(task.flops for task in model.tasks) < 3 * 4 * 11 * 13
    # TVM divides by the whole window where padding counts: the expected results are NumPy's.
    counted = sum(padding) if pool == "average with padding" else 0
    expected = x.max((2, 3)) if pool == "max" else x.sum((2, 3)) / ((5 + counted) * (7 + counted))
    (found,) = run_lowered(model, [x])
    np.testing.assert_allclose(found.reshape(1, 3), expected, rtol=1e-5)


def test_pooling_of_one_and_three_dimensions() -> None:
    check(lambda bb, v: op.nn.max_pool1d(v, pool_size=3, strides=2), [normal(1, 3, 9)])
    check(lambda bb, v: op.nn.avg_pool3d(v, pool_size=(2, 2, 2)), [normal(1, 2, 4, 4, 4)])


def test_global_average_is_a_mean_over_positions() -> None:
    model = check(lambda bb, v: op.nn.adaptive_avg_pool2d(v, (1, 1)), [normal(1, 3, 5, 5)])
    assert functions(model) == ["fused_mean"]
    check(lambda bb, v: op.nn.adaptive_avg_pool2d(v, (2, 3)), [normal(1, 3, 5, 7)])


def test_a_value_that_a_reduction_reads_twice_is_computed_inside_of_it() -> None:
    def build(bb, x):
        y = bb.emit(op.tanh(x))
        return op.sum(bb.emit(op.multiply(y, bb.emit(op.add(y, relax.const(1.0))))), [1])

    assert functions(check(build, [normal(3, 7)])) == ["fused_tanh_add_multiply_sum"]


@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
@pytest.mark.parametrize("size", [6, 32])
@pytest.mark.parametrize("axes", [(1, 0, 2), (0, 2, 1), (2, 0, 1)])
@pytest.mark.parametrize("on_gpu", [False, True], ids=["cpu", "gpu"])
def test_what_turns_a_row_wise_result_leaves_it_a_program(
    name: str, size: int, axes: tuple[int, ...], on_gpu: bool
) -> None:
    """Whole rows move inside of the function that makes them; columns that become rows do not."""
    board = board_for(declared()["jetson_orin_nano" if on_gpu else "x86_64-v4"])
    assert board is not None
    board = board.on_gpu() if on_gpu else board
    draw = Draw(random.Random(0))
    shape = (size, 5 if size < 32 else size, 32)
    attributes = {"dims": 1, "epsilon": 1e-5} if name == "layer_norm" else {}
    made = draw.builder.one(name, [draw.input(*shape)], shape, "float32", **attributes)
    turned = draw.builder.transpose(draw.builder.unary("sigmoid", made), axes)
    graph = draw.builder.graph(draw.inputs, turned)
    tasks = make_tasks(emit(graph, fuse(graph, on_gpu=on_gpu), Target(board.tvm_target))[0])
    # On a GPU only rows of which there are as many along each dimension.
    assert len(tasks) == (1 if axes[-1] == 2 and (not on_gpu or size == 32) else 2)
    rules = [space_for(task, board.hardware, 1).rule.name.removeprefix("cuda_") for task in tasks]
    assert rules[0] == "rowwise" and set(rules[1:]) <= {"injective"}
