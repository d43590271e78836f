"""What stands in front of a convolution is stored first exactly where tensor cores compute it."""

from __future__ import annotations

import pytest
from tvm import relax

from host.lowering import lower
from host.schedules.analysis import analyse
from host.schedules.cuda.mma.product import product_of
from targets import board_for, declared
from tests.unit.lowering.harness import imported, normal, relax_module

# Channels, columns, taps along an axis, groups.
CASES = {
    "dense": (32, 48, 3, 1),
    "two columns": (32, 2, 3, 1),
    "one column": (32, 1, 3, 1),
    "depth of 12": (3, 24, 2, 1),
    "depth of 18": (2, 24, 3, 1),
    "groups of 16 columns": (32, 32, 3, 2),
    "groups of 3 columns, five of them": (10, 15, 3, 5),
    "groups of 2 columns, three of them": (6, 6, 3, 3),
    "groups of 4 columns, three of them": (6, 12, 3, 3),
    "groups of 1 column": (16, 8, 3, 8),
    "groups of 24 columns, of which a block is not whole": (16, 48, 3, 2),
    "each channel by itself": (16, 16, 3, 16),
}
LARGE = 1e6


def _products(
    case: tuple[int, int, int, int], activated: bool, scale: float = 1.0, dtype: str = "float32"
) -> list[bool]:
    """For each function with a convolution, an activation or a conversion, whether `cuda_mma` takes it."""
    channels, columns, taps, groups = case
    weight = (scale * normal(columns, channels // groups, taps, taps)).astype("float32")

    def build(builder: relax.BlockBuilder, image: relax.Var) -> relax.Expr:
        if dtype != "float32":
            image = builder.emit(relax.op.astype(image, "float32"))
        if activated:
            image = builder.emit(relax.op.nn.silu(image))
        return builder.emit(relax.op.nn.conv2d(image, relax.const(weight), padding=(1, 1), groups=groups))

    found = board_for(declared()["jetson_orin_nano"])
    assert found is not None
    image = normal(1, channels, 9, 9).astype(dtype)
    model = lower(imported(relax_module(build, [image])), found.on_gpu(), half="float16")
    named = [task for task in model.tasks if any(name in task.name for name in ("conv", "silu", "cast"))]
    return [product_of(analyse(task.function)) is not None for task in named]


@pytest.mark.parametrize("scale", [1.0, LARGE])
@pytest.mark.parametrize("name", CASES)
def test_an_activation_is_stored_where_a_product_reads_it(name: str, scale: float) -> None:
    """Weights beyond the range of halves are none that tensor cores multiply."""
    (alone,) = _products(CASES[name], False, scale)
    assert not alone or scale < LARGE
    assert _products(CASES[name], True, scale) == ([False, True] if alone else [False])


def test_the_cases_have_both() -> None:
    found = [_products(case, False) for case in CASES.values()]
    assert found.count([True]) >= 4 and found.count([False]) >= 4


def test_halves_that_are_only_widened_are_read_in_their_place() -> None:
    """Conversions of the image are part of the function with the convolution."""
    assert _products(CASES["dense"], False, dtype="float16") == [True]
