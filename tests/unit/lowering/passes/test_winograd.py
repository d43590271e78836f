"""Winograd's algorithm: its transforms are identities, and rewritten graphs compute the same."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from host.lowering.emit import emit
from host.lowering.fusion import fuse
from host.lowering.graph import Graph
from host.lowering.lower import optimise
from host.lowering.ops import known_operators
from host.lowering.passes.use_winograd import use_winograd
from host.lowering.reader.relax_reader import read
from host.lowering.winograd import TILES
from targets import board_for, declared
from tests.unit.lowering.harness import board, normal, relax_module, run, weight

op, nn = relax.op, relax.op.nn


@dataclass(frozen=True)
class Surd:
    """a + b sqrt(2) with rational a and b: where the transforms' constants are exact."""

    a: Fraction
    b: Fraction = Fraction(0)

    @staticmethod
    def of(value: Surd | float | int) -> Surd:
        """The number that a constant stands for."""
        if isinstance(value, Surd):
            return value
        for irrational in (False, True):
            exact = Fraction(value / math.sqrt(2) if irrational else value).limit_denominator(1000)
            near = float(exact) * (math.sqrt(2) if irrational else 1.0)
            if math.isclose(near, value, rel_tol=1e-15):
                return Surd(Fraction(0), exact) if irrational else Surd(exact)
        raise ValueError(f"{value} is not a small fraction, nor one times sqrt(2)")

    def __add__(self, other: Surd | float) -> Surd:
        other = Surd.of(other)
        return Surd(self.a + other.a, self.b + other.b)

    def __sub__(self, other: Surd | float) -> Surd:
        other = Surd.of(other)
        return Surd(self.a - other.a, self.b - other.b)

    def __mul__(self, other: Surd | float) -> Surd:
        other = Surd.of(other)
        return Surd(self.a * other.a + 2 * self.b * other.b, self.a * other.b + self.b * other.a)


def _numbers(generator: random.Random, count: int) -> list[Surd]:
    return [Surd(Fraction(generator.randint(-99, 99), generator.randint(1, 9))) for _ in range(count)]


def _dot(left: list[Surd], right: list[Surd]) -> Surd:
    total = Surd(Fraction(0))
    for a, b in zip(left, right, strict=True):
        total += a * b
    return total


def _both_ways(transform: Callable[[Any], list[Any]], matrix: list[list[Surd]]) -> list[list[Surd]]:
    """The transform of all columns, then of all rows."""
    columns = [transform(column) for column in zip(*matrix, strict=True)]
    return [transform(row) for row in zip(*columns, strict=True)]


@pytest.mark.parametrize("outputs", TILES)
def test_transforms_are_an_identity(outputs: int) -> None:
    transform, generator = TILES[outputs], random.Random(outputs)
    inputs, taps = _numbers(generator, transform.size), _numbers(generator, 3)
    products = [a * b for a, b in zip(transform.input(inputs), transform.weight(taps), strict=True)]
    assert transform.output(products) == [_dot(inputs[i : i + 3], taps) for i in range(outputs)]


@pytest.mark.parametrize("outputs", TILES)
def test_transforms_of_tiles_are_an_identity(outputs: int) -> None:
    transform, generator = TILES[outputs], random.Random(outputs)
    patch = [_numbers(generator, transform.size) for _ in range(transform.size)]
    taps = [_numbers(generator, 3) for _ in range(3)]
    left, right = _both_ways(transform.input, patch), _both_ways(transform.weight, taps)
    products = [[a * b for a, b in zip(*rows, strict=True)] for rows in zip(left, right, strict=True)]
    wanted = [
        [
            _dot([patch[i + r][j + c] for r in range(3) for c in range(3)], list(itertools.chain(*taps)))
            for j in range(outputs)
        ]
        for i in range(outputs)
    ]
    assert _both_ways(transform.output, products) == wanted


def _conv(
    builder: relax.BlockBuilder, x: relax.Expr, channels: int, depth: int, seed: int = 1, **attrs: Any
) -> relax.Var:
    attrs = {"padding": (1, 1, 1, 1), "data_layout": "NHWC", "out_layout": "NHWC", **attrs}
    return builder.emit(nn.conv2d(x, weight(channels, depth, 3, 3, seed=seed), **attrs))


def _graph(build: Callable[..., Any], inputs: list[np.ndarray]) -> Graph:
    graph = read(relax_module(build, inputs), known_operators())
    return optimise(graph, board().hardware, approximate=False)


def _rewritten(build: Callable[..., Any], inputs: list[np.ndarray], outputs: int | None) -> Graph:
    return use_winograd(_graph(build, inputs), board().hardware, outputs)


def _operations(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def _run(graph: Graph, inputs: list[np.ndarray]) -> np.ndarray:
    module, parameters, _ = emit(graph, fuse(graph), tvm.target.Target("llvm"))
    [found] = run(module, [*inputs, *parameters])
    return found


def _check(build: Callable[..., Any], inputs: list[np.ndarray], outputs: int) -> None:
    graph = _rewritten(build, inputs, outputs)
    assert "winograd_conv" in _operations(graph)
    [wanted] = run(relax_module(build, inputs), inputs)
    found = _run(graph, inputs)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("outputs", TILES)
@pytest.mark.parametrize(
    ("shape", "channels", "padding"),
    [
        ((1, 2, 2, 3), 16, (1, 1, 1, 1)),
        ((1, 3, 3, 17), 16, (0, 0, 0, 0)),
        ((1, 5, 15, 3), 48, (1, 1, 1, 1)),
        ((2, 7, 4, 17), 32, (0, 1, 2, 3)),
        ((2, 9, 6, 64), 16, (2, 0, 0, 1)),
    ],
)
def test_rewritten_convolutions_compute_the_same(
    shape: tuple[int, ...], channels: int, padding: tuple[int, ...], outputs: int
) -> None:
    _check(lambda b, x: _conv(b, x, channels, shape[-1], padding=padding), [normal(*shape)], outputs)


@pytest.mark.parametrize("outputs", TILES)
def test_what_follows_stays_in_the_function(outputs: int) -> None:
    """Bias, residual and activation; and an activation before, on the way into the padded input."""

    def build(b: relax.BlockBuilder, x: relax.Expr, residual: relax.Expr) -> relax.Var:
        value = _conv(b, b.emit(nn.relu(x)), 16, 8)
        value = b.emit(op.add(b.emit(op.add(value, weight(16, seed=3))), residual))
        return b.emit(op.multiply(value, b.emit(op.sigmoid(value))))

    inputs = [normal(1, 6, 7, 8), normal(1, 6, 7, 16)]
    assert len(fuse(_rewritten(build, inputs, outputs))) == 1
    _check(build, inputs, outputs)


@pytest.mark.parametrize(
    "attrs",
    [
        {"strides": (2, 2)},
        {"dilation": (2, 2)},
        {"strides": (1, 2)},
        {"groups": 2},
        {"groups": 16},
    ],
)
def test_other_convolutions_are_left_alone(attrs: dict[str, Any]) -> None:
    depth = 16 // attrs.get("groups", 1)
    graph = _rewritten(lambda b, x: _conv(b, x, 16, depth, **attrs), [normal(1, 9, 9, 16)], 4)
    assert "winograd_conv" not in _operations(graph)


def test_other_sizes_of_windows_are_left_alone() -> None:
    def build(b: relax.BlockBuilder, x: relax.Expr) -> relax.Var:
        layout = {"data_layout": "NHWC", "out_layout": "NHWC"}
        value = b.emit(nn.conv2d(x, weight(16, 16, 5, 5), **layout))
        return b.emit(nn.conv2d(value, weight(16, 16, 3, 1), **layout))

    assert "winograd_conv" not in _operations(_rewritten(build, [normal(1, 12, 12, 16)], 4))


def test_channels_that_do_not_fill_their_vectors_are_left_alone() -> None:
    graph = _rewritten(lambda b, x: _conv(b, x, 33, 16), [normal(1, 9, 9, 16)], 4)
    assert "winograd_conv" not in _operations(graph)


def test_a_convolution_that_ends_in_a_transpose_is_left_alone() -> None:
    def build(b: relax.BlockBuilder, x: relax.Expr) -> relax.Var:
        first = b.emit(nn.relu(_conv(b, x, 16, 16)))
        return b.emit(nn.relu(b.emit(op.permute_dims(_conv(b, first, 16, 16), (0, 3, 1, 2)))))

    operations = _operations(_rewritten(build, [normal(1, 16, 16, 16)], 4))
    assert (operations.count("winograd_conv"), operations.count("packed_conv")) == (1, 1)


def test_a_gpu_keeps_direct_convolutions() -> None:
    jetson = board_for(declared()["jetson_orin_nano"])
    assert jetson is not None
    assert jetson.gpu is not None
    graph = _graph(lambda b, x: _conv(b, x, 64, 64), [normal(1, 56, 56, 64)])
    assert "winograd_conv" in _operations(use_winograd(graph, jetson.hardware))
    assert use_winograd(graph, jetson.on_gpu().hardware, 4) is graph


@pytest.mark.parametrize("outputs", TILES)
def test_errors_stay_small_over_many_layers(outputs: int) -> None:
    """16 convolutions in a row: far below the 1e-3 at which a bundle is refused."""

    def build(b: relax.BlockBuilder, x: relax.Expr) -> relax.Var:
        for number in range(16):
            x = b.emit(nn.relu(b.emit(op.multiply(_conv(b, x, 16, 16, number), relax.const(math.sqrt(2))))))
        return x

    inputs = [normal(1, 18, 18, 16)]
    graph = _rewritten(build, inputs, outputs)
    assert _operations(graph).count("winograd_conv") == 16
    [wanted] = run(relax_module(build, inputs), inputs)
    assert np.abs(_run(graph, inputs) - wanted).max() < 1e-4 * np.abs(wanted).max()
