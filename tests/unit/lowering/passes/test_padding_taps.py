"""Convolutions whose taps read padding: fewer products, the same results."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from host.lowering.passes.padding import split_by_region
from tests.unit.lowering.harness import Build, check, lowered


def _convolution(kernel: np.ndarray, tail: bool = True, **attributes: Any) -> Build:
    def build(builder: relax.BlockBuilder, data: relax.Var) -> relax.Var:
        made = builder.emit(relax.op.nn.conv2d(data, relax.const(kernel), **attributes))
        if not tail:
            return made
        shift = relax.const(np.linspace(-1, 1, kernel.shape[0], dtype="float32").reshape(1, -1, 1, 1))
        return builder.emit(relax.op.nn.relu(builder.emit(relax.op.add(made, shift))))

    return build


def _values(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


def _whole(*shape: int) -> np.ndarray:
    """Whole numbers from -4 to 4, as float32."""
    return np.clip(np.rint(2.0 * _values(*shape)), -4.0, 4.0)


def _flops(build: Build, data: np.ndarray) -> float:
    return sum(task.weight * task.flops for task in lowered(build, [data]).tasks)


def test_a_kernel_that_reaches_out_of_the_image_on_all_sides_is_a_dense_product() -> None:
    data, kernel = _values(1, 32, 16, 16), _values(48, 32, 3, 3)
    build = _convolution(kernel, padding=24, dilation=24)
    tasks = lowered(build, [data]).tasks
    assert any("dense" in task.name for task in tasks)
    assert _flops(build, data) < 2 * 16 * 16 * 32 * 48 * 1.1
    check(build, [data])


def test_taps_that_read_the_image_in_places_are_computed_there_only() -> None:
    data, kernel = _values(1, 128, 16, 16), _values(64, 128, 3, 3)
    build = _convolution(kernel, padding=12, dilation=12)
    # Each dimension: a quarter of the positions reads two taps at each end, half of them one.
    assert _flops(build, data) == pytest.approx(2.25 * 2 * 16 * 16 * 128 * 64, rel=0.02)
    check(build, [data], rtol=1e-4)


def test_regions_share_one_packed_weight() -> None:
    data, kernel = _values(1, 128, 16, 16), _values(64, 128, 3, 3)
    model = lowered(_convolution(kernel, padding=12, dilation=12), [data])
    assert sum(parameter.nbytes for parameter in model.parameters) < 1.01 * kernel.nbytes


def test_what_follows_a_channel_is_computed_in_each_region() -> None:
    data, kernel = _values(1, 128, 16, 16), _values(64, 128, 3, 3)
    names = [task.name for task in lowered(_convolution(kernel, padding=12, dilation=12), [data]).tasks]
    assert not any(name.startswith(("fused_add", "fused_relu")) for name in names)


def test_an_ordinary_convolution_stays_whole() -> None:
    data, kernel = _values(1, 16, 28, 28), _values(32, 16, 3, 3)
    names = [task.name for task in lowered(_convolution(kernel, padding=1), [data]).tasks]
    assert not any("concat" in name for name in names)


@settings(max_examples=12, deadline=None)
@given(
    size=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    padding=st.lists(st.integers(0, 7), min_size=4, max_size=4),
    dilation=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    groups=st.sampled_from((1, 2, 64)),
)
def test_any_convolution_gives_the_same(
    size: tuple[int, int],
    kernel: tuple[int, int],
    padding: list[int],
    dilation: tuple[int, int],
    strides: tuple[int, int],
    groups: int,
) -> None:
    around = [n + padding[d] + padding[2 + d] for d, n in enumerate(size)]
    if any((k - 1) * d >= n for k, d, n in zip(kernel, dilation, around, strict=True)):
        return
    # Of small whole numbers every sum is exact, whatever its order.
    data, weight = (_whole(*shape) for shape in ((3, 64, *size), (64, 64 // groups, *kernel)))
    attributes = {"padding": padding, "dilation": list(dilation), "strides": list(strides), "groups": groups}
    free = {
        "_MULTIPLICATIONS_PER_WEIGHT": 0,
        "_MULTIPLICATIONS_PER_REGION": 0,
        "_MULTIPLICATIONS_PER_COPY": 0,
    }
    with patch.multiple(split_by_region, **free):
        check(_convolution(weight, **attributes), [data], rtol=1e-4)
