"""Sums of convolutions of one input, as networks with several branches have them, are one convolution."""

from __future__ import annotations

import pytest
from tvm import relax

from host.lowering.builder import Builder
from host.lowering.graph import Graph, Value
from host.lowering.ops import known_operators
from host.lowering.passes.convolutions.join_branches import join_branches
from host.model import LoweredModel
from tests.unit.lowering.harness import check, functions, normal, weight
from tests.unit.lowering.passes.test_affine import batch_norm

op = relax.op
CHANNELS = 8


def products(model: LoweredModel) -> int:
    """Functions of convolutions and dense products."""
    return sum("conv" in name or "dense" in name for name in functions(model))


@pytest.mark.parametrize("strides", [1, 2])
@pytest.mark.parametrize("groups", [1, 2, CHANNELS])
@pytest.mark.parametrize("size", [7, 8])
def test_branches_of_a_block(strides: int, groups: int, size: int) -> None:
    """A 3x3, two 1x1 and a scaled identity, each with a norm, as of RepVGG and MobileOne."""

    def build(bb, image):
        x = bb.emit(op.nn.relu(bb.emit(op.nn.conv2d(image, weight(CHANNELS, 4, 1, 1, seed=9)))))

        def branch(kernel: int, seed: int):
            taps = weight(CHANNELS, CHANNELS // groups, kernel, kernel, seed=seed)
            y = op.nn.conv2d(x, taps, padding=kernel // 2, strides=strides, groups=groups)
            return batch_norm(bb, bb.emit(y), CHANNELS)

        total = bb.emit(op.add(branch(3, 1), branch(1, 2)))
        if strides == 1:
            total = bb.emit(op.add(batch_norm(bb, x, CHANNELS), total))
        return op.nn.relu(bb.emit(op.add(total, branch(1, 3))))

    model = check(build, [normal(1, 4, size, size + 2)])
    assert products(model) == 2
    assert not any("multiply" in name for name in functions(model))


@pytest.mark.parametrize(
    ("first", "second", "taps"), [([1, 0, 1, 0], [2, 0, 0, 0], 4), ([0] * 4, [0] * 4, 3)]
)
def test_windows_need_no_common_centre(first: list[int], second: list[int], taps: int) -> None:
    def build(bb, x):
        one = op.nn.conv2d(x, weight(CHANNELS, 4, 3, 1), padding=first)
        other = op.nn.conv2d(x, weight(CHANNELS, 4, 3, 1, seed=5), padding=second)
        return op.add(bb.emit(one), bb.emit(other))

    model = check(build, [normal(1, 4, 12, 12)])
    assert [array.shape[-4:-2] for array in model.parameters if array.ndim > 3] == [(taps, 1)]


def test_dense_products_of_one_input() -> None:
    def build(bb, x):
        first = bb.emit(op.add(op.matmul(x, weight(6, 16)), weight(16, seed=3)))
        return op.add(first, bb.emit(op.matmul(x, weight(6, 16, seed=2))))

    assert products(check(build, [normal(1, 5, 6)])) == 1


def test_what_is_no_sum_of_branches_stays() -> None:
    """A branch that something else reads, other inputs, and kernels that cover less alone than together."""

    def build(bb, x, z):
        def conv(data, seed: int, rows: int = 3, columns: int = 3, **attrs):
            pads = [rows // 2, columns // 2] * 2
            taps = weight(CHANNELS, CHANNELS, rows, columns, seed=seed)
            return bb.emit(op.nn.conv2d(data, taps, **{"padding": pads, **attrs}))

        read_twice = conv(x, 1)
        one = op.add(bb.emit(op.tanh(read_twice)), bb.emit(op.add(read_twice, conv(x, 2))))
        two = op.add(conv(x, 3), conv(z, 4))
        three = op.add(conv(x, 5, 1, 7), conv(x, 6, 7, 1))
        four = op.add(conv(x, 7), conv(x, 8, dilation=2, padding=2))
        return relax.Tuple([bb.emit(one), bb.emit(two), bb.emit(three), bb.emit(four)])

    model = check(build, [normal(1, CHANNELS, 9, 9), normal(1, CHANNELS, 9, 9, seed=3)])
    assert sum(array.ndim > 3 for array in model.parameters) == 8


def test_a_sum_that_is_read_twice_is_not_computed_twice() -> None:
    """Its branches are joined; the one that is added to it for one of the readers stays beside it."""

    def build(bb, x):
        def conv(kernel: int, seed: int):
            taps = weight(CHANNELS, CHANNELS, kernel, kernel, seed=seed)
            return bb.emit(op.nn.conv2d(x, taps, padding=kernel // 2))

        both = bb.emit(op.add(conv(3, 1), conv(3, 2)))
        more = bb.emit(op.add(both, conv(1, 3)))
        return relax.Tuple([bb.emit(op.tanh(both)), bb.emit(op.exp(more))])

    model = check(build, [normal(1, CHANNELS, 9, 9)])
    assert sum(array.shape[1:3] == (3, 3) for array in model.parameters) == 1


def test_sums_of_any_number_of_terms() -> None:
    terms = 1500
    builder = Builder(known_operators())
    inputs = tuple(Value((2, CHANNELS), "float32") for _ in range(terms))
    total = inputs[0]
    for term in inputs[1:]:
        total = builder.binary("add", total, term)
    graph: Graph = builder.graph(inputs, builder.unary("tanh", total))
    assert len(join_branches(graph).nodes) == terms
