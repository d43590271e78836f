"""Images of another resolution beside ONNX's reference, and how their layouts are chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import relax

from host.lowering import lower
from tests.unit.lowering.harness import (
    board,
    check,
    functions,
    imported,
    normal,
    relax_module,
    run,
    run_lowered,
    weight,
)


def _resize(size: tuple[int, int], method: str, mode: str) -> Any:
    def build(builder: Any, image: Any) -> Any:
        rounding = "floor" if method == "nearest_neighbor" else "round"
        return relax.op.image.resize2d(image, size, None, "NCHW", method, mode, rounding)

    return build


@pytest.mark.parametrize("channels", [3, 12])
@pytest.mark.parametrize("size", [(10, 14), (7, 5), (15, 3), (5, 7)])
@pytest.mark.parametrize(
    ("method", "mode"),
    [
        ("linear", "half_pixel"),
        ("linear", "align_corners"),
        ("linear", "asymmetric"),
        ("nearest_neighbor", "asymmetric"),
    ],
)
def test_resized_images_are_those_of_tvm(
    channels: int, size: tuple[int, int], method: str, mode: str
) -> None:
    image = normal(2, channels, 5, 7)
    model = check(_resize(size, method, mode), [image], atol=1e-4)
    if size != (5, 7):
        assert any("resize" in name for name in functions(model))


def test_an_image_that_keeps_its_size_is_not_touched() -> None:
    def build(builder: Any, image: Any) -> Any:
        return relax.op.nn.relu(builder.emit(_resize((5, 7), "linear", "half_pixel")(builder, image)))

    assert functions(check(build, [normal(1, 12, 5, 7)])) == ["fused_relu"]


def test_between_convolutions_no_layout_changes() -> None:
    """Channels stay last from one convolution to the next."""

    def build(builder: Any, image: Any) -> Any:
        first = builder.emit(relax.op.nn.conv2d(image, weight(16, 3, 3, 3), padding=1))
        larger = builder.emit(_resize((16, 16), "linear", "half_pixel")(builder, first))
        return builder.emit(relax.op.nn.conv2d(larger, weight(16, 16, 3, 3), padding=1))

    found = functions(check(build, [normal(1, 3, 8, 8)], atol=1e-4))
    assert sum("transpose" in name for name in found) == 2, found


def test_an_addition_behind_joins_the_function() -> None:
    def build(builder: Any, image: Any, other: Any) -> Any:
        larger = builder.emit(_resize((10, 14), "nearest_neighbor", "asymmetric")(builder, image))
        return relax.op.add(larger, other)

    found = functions(check(build, [normal(1, 3, 5, 7), normal(1, 3, 10, 14)]))
    assert found == ["fused_resize_add"]


def test_halves_are_read_and_mixed_in_single_precision() -> None:
    def build(builder: Any, image: Any) -> Any:
        first = builder.emit(relax.op.nn.relu(image))
        larger = builder.emit(_resize((16, 16), "linear", "half_pixel")(builder, first))
        return builder.emit(relax.op.nn.conv2d(larger, weight(16, 16, 3, 3), padding=1))

    inputs = [normal(1, 16, 8, 8)]
    module = relax_module(build, inputs)
    (wanted,) = run(module, inputs)
    (found,) = run_lowered(lower(imported(module), board(8), half="float16"), inputs)
    assert 0.0 < np.abs(found - wanted).max() < 2e-3 * np.abs(wanted).max()
