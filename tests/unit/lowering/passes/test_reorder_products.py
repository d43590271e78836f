"""Products before resizing, and products of products."""

from __future__ import annotations

from typing import Any

from tvm import relax

from host.model import LoweredModel
from tests.unit.lowering.harness import check, functions, normal, weight


def _larger(builder: Any, image: Any, size: int) -> Any:
    return builder.emit(relax.op.image.resize2d(image, (size, size), None, "NCHW", "linear", "half_pixel"))


def _products(model: LoweredModel) -> list[float]:
    """Operations of each dense product in the model."""
    return sorted(task.flops * task.weight for task in model.tasks if "dense" in task.name)


def test_maps_are_mixed_before_they_are_enlarged_and_added_up() -> None:
    """As in the head of SegFormer: maps of three sizes, joined, mixed, with a shift and an activation."""
    bias = relax.const(normal(24, 1, 1))

    def build(builder: Any, small: Any, middle: Any, large: Any) -> Any:
        parts = [_larger(builder, small, 16), _larger(builder, middle, 16), large]
        joined = builder.emit(relax.op.concat(parts, 1))
        mixed = builder.emit(relax.op.nn.conv2d(joined, weight(24, 16 + 32 + 8, 1, 1)))
        return relax.op.nn.relu(builder.emit(relax.op.add(mixed, bias)))

    model = check(build, [normal(1, 16, 4, 4), normal(1, 32, 8, 8), normal(1, 8, 16, 16)], atol=1e-4)
    names = functions(model)
    assert not any("concat" in name for name in names)
    assert sum("resize" in name for name in names) == 2
    products = _products(model)
    assert len(products) == 3
    # 24 columns are filled up to two vectors.
    assert sum(products) < 1.2 * 2 * 32 * (16 * 16 + 64 * 32 + 256 * 8)


def test_a_map_that_something_else_reads_is_enlarged_as_it_is() -> None:
    def build(builder: Any, small: Any) -> Any:
        large = _larger(builder, small, 16)
        mixed = builder.emit(relax.op.nn.conv2d(large, weight(24, 16, 1, 1)))
        return builder.emit(relax.op.concat([mixed, large], 1))

    model = check(build, [normal(1, 16, 4, 4)], atol=1e-4)
    assert sum(_products(model)) >= 2 * 256 * 16 * 24


def test_a_product_that_makes_many_channels_stays_behind() -> None:
    """Enlarging 512 channels costs more than the product of the small map saves."""

    def build(builder: Any, small: Any) -> Any:
        return builder.emit(relax.op.nn.conv2d(_larger(builder, small, 16), weight(512, 4, 1, 1)))

    # TVM's own form of so many channels rounds otherwise.
    model = check(build, [normal(1, 4, 12, 12)], atol=1e-4)
    assert sum(_products(model)) >= 2 * 256 * 4 * 512


def test_adding_up_the_parts_of_wide_results_costs_more_than_joining_the_maps() -> None:
    """Eight channels that are enlarged a little, beside 64 that are not."""

    def build(builder: Any, small: Any, large: Any) -> Any:
        large = builder.emit(relax.op.permute_dims(large, (0, 3, 1, 2)))
        joined = builder.emit(relax.op.concat([_larger(builder, small, 16), large], 1))
        return builder.emit(relax.op.nn.conv2d(joined, weight(64, 72, 1, 1)))

    model = check(build, [normal(1, 8, 12, 12), normal(1, 16, 16, 64)], atol=1e-4)
    assert len(_products(model)) == 1


def test_two_products_with_a_shift_between_are_one() -> None:
    first, second, shift = weight(64, 48), weight(48, 24), relax.const(normal(48))

    def build(builder: Any, rows: Any) -> Any:
        hidden = builder.emit(relax.op.add(builder.emit(relax.op.matmul(rows, first)), shift))
        return builder.emit(relax.op.matmul(hidden, second))

    assert functions(check(build, [normal(20, 64)], atol=1e-4)) == ["fused_packed_dense_add"]


def test_a_narrow_product_between_two_wide_ones_saves_work_and_stays() -> None:
    first, second = weight(64, 4), weight(4, 64)

    def build(builder: Any, rows: Any) -> Any:
        return builder.emit(relax.op.matmul(builder.emit(relax.op.matmul(rows, first)), second))

    assert len(_products(check(build, [normal(20, 64)], atol=1e-4))) == 2


def test_a_hidden_result_that_is_returned_stays() -> None:
    first, second = weight(64, 48), weight(48, 24)

    def build(builder: Any, rows: Any) -> Any:
        hidden = builder.emit(relax.op.matmul(rows, first))
        return builder.emit(relax.Tuple([hidden, builder.emit(relax.op.matmul(hidden, second))]))

    assert len(_products(check(build, [normal(20, 64)], atol=1e-4))) == 2
