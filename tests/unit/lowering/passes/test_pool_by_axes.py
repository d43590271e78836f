"""Pooling of images of few channels, and with large windows, beside TVM's own."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from tvm import relax

from host.lowering import lower
from host.model import Task
from host.schedules import space_for
from targets import HardwareModel
from tests.unit.lowering.harness import (
    board,
    check,
    functions,
    imported,
    lowered,
    normal,
    relax_module,
    run_lowered,
)

op = relax.op

WINDOWS = {
    "steps of one": dict(pool_size=(3, 3), padding=(1, 1, 1, 1)),
    "steps of two": dict(pool_size=(2, 2), strides=(2, 2)),
    "padded steps of two": dict(pool_size=(3, 3), strides=(2, 2), padding=(1, 1, 1, 1)),
    "one-sided": dict(pool_size=(3, 2), strides=(2, 1), padding=(0, 0, 1, 1)),
    "rounded up": dict(pool_size=(3, 3), strides=(2, 2), ceil_mode=True),
    "large": dict(pool_size=(9, 9), padding=(4, 4, 4, 4)),
    "large and dilated": dict(pool_size=(5, 5), dilation=(2, 2), padding=(3, 3, 3, 3)),
    "rows alone": dict(pool_size=(3, 1), strides=(1, 2)),
}
_PAIRS = tuple(itertools.product(WINDOWS, (1, 3, 12)))


@pytest.mark.parametrize(("name", "channels"), _PAIRS)
def test_maxima_are_those_of_whole_windows(name: str, channels: int) -> None:
    check(lambda bb, v: op.nn.max_pool2d(v, **WINDOWS[name]), [normal(2, channels, 20, 21) - 3])


@pytest.mark.parametrize(
    ("name", "channels"), [pair for pair in _PAIRS if "dilated" not in pair[0] and pair[1] != 3]
)
@pytest.mark.parametrize("count", [True, False])
def test_means_are_those_of_whole_windows(name: str, channels: int, count: bool) -> None:
    if name == "rounded up" and count:
        return  # TVM divides by the whole window there
    build = lambda bb, v: op.nn.avg_pool2d(v, count_include_pad=count, **WINDOWS[name])  # noqa: E731
    check(build, [normal(2, channels, 20, 21)])


def test_volumes_and_lines_of_one_channel() -> None:
    check(lambda bb, v: op.nn.max_pool1d(v, pool_size=3, padding=1), [normal(1, 1, 40)])
    check(lambda bb, v: op.nn.avg_pool3d(v, pool_size=(2, 2, 2), strides=(2, 2, 2)), [normal(1, 1, 4, 6, 20)])
    check(lambda bb, v: op.nn.max_pool3d(v, pool_size=(1, 5, 5)), [normal(1, 12, 4, 9, 9)])


def _suppressed(size: int) -> Any:
    """Where an element is the largest of its neighbours, as detectors of points find them."""

    def build(bb: Any, v: Any) -> Any:
        window = dict(pool_size=(size, size), padding=(size // 2,) * 4)
        return op.equal(v, bb.emit(op.nn.max_pool2d(v, **window)))

    return build


@pytest.mark.parametrize(
    ("size", "wanted"),
    [(3, ["fused_pad", "fused_pool_equal"]), (9, ["fused_pad", "fused_pool", "fused_pool_equal"])],
)
def test_what_follows_is_computed_with_the_last_axis(size: int, wanted: list[str]) -> None:
    assert functions(check(_suppressed(size), [normal(1, 1, 24, 32)])) == wanted


def test_images_of_one_channel_have_vectors_along_their_rows() -> None:
    model = lowered(_suppressed(9), [normal(1, 1, 24, 32)])
    assert [_rule(task, board().hardware) for task in model.tasks] == ["injective", "tiled", "tiled"]


def _rule(task: Task, hardware: HardwareModel) -> str:
    return space_for(task, hardware, 1).rule.name


def _neighbours(size: int) -> Any:
    """The mean square of neighbouring channels, which a normalisation divides by."""

    def build(bb: Any, v: Any) -> Any:
        squares = bb.emit(op.expand_dims(bb.emit(op.multiply(v, v)), 1))
        sides = (size // 2, 0, 0, (size - 1) // 2, 0, 0)
        window = dict(pool_size=(size, 1, 1), padding=sides, count_include_pad=True)
        mean = bb.emit(op.squeeze(bb.emit(op.nn.avg_pool3d(squares, **window)), [1]))
        return op.divide(v, bb.emit(op.add(mean, relax.const(1.0, "float32"))))

    return build


@pytest.mark.parametrize("size", [4, 5])
def test_axes_that_are_not_pooled_are_channels(size: int) -> None:
    data = normal(2, 12, 5, 7)
    model = check(_neighbours(size), [data])
    assert [_rule(task, board().hardware) for task in model.tasks] == ["injective", "tiled"]
    model = check(
        lambda bb, v: op.nn.max_pool2d(v, pool_size=(3, 1), padding=(1, 0, 1, 0)), [normal(2, 1, 9, 8)]
    )
    assert functions(model) == ["fused_pool"]


def test_windows_of_bytes_are_taken_apart_too() -> None:
    data = np.random.default_rng(0).integers(0, 255, (1, 8, 12, 12)).astype("uint8")
    model = check(lambda bb, v: op.nn.max_pool2d(v, pool_size=(5, 5)), [data])
    assert functions(model).count("fused_pool") == 2


def test_steps_over_an_image_are_one_function() -> None:
    strides = dict(pool_size=(1, 1), strides=(2, 2))
    model = check(lambda bb, v: op.nn.max_pool2d(v, **strides), [normal(1, 12, 20, 21)])
    assert functions(model).count("fused_pool") == 1


def test_models_for_any_length_keep_their_windows() -> None:
    data = normal(1, 12, 20, 20)
    module = relax_module(lambda bb, v: op.nn.max_pool2d(v, pool_size=(5, 5)), [data])
    model = lower(imported(module), board(), any_length=True)
    assert functions(model).count("fused_pool") == 1
    (found,) = run_lowered(model, [data])
    windows = np.lib.stride_tricks.sliding_window_view(data, (5, 5), (2, 3))
    np.testing.assert_array_equal(found, windows.max((-2, -1)))
