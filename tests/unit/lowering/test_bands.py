"""Chains of convolutions in bands of rows: what they compute, what makes one, and when it is taken."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from tvm import relax

from host.errors import LoweringError
from host.lowering import lower
from host.lowering.bands.chain import Bands
from host.model import LoweredModel, Site
from targets import Board, MemoryLevel
from tests.unit.lowering.harness import board, imported, normal, relax_module, run, run_lowered, weight


@dataclass(frozen=True)
class Shape:
    """Of a chain: image, channels, window; `out` of 0 leaves the last product away, `bare` all else."""

    height: int = 12
    width: int = 7
    depth: int = 8
    channels: int = 16
    out: int = 8
    kernel: int = 3
    stride: int = 1
    dilation: int = 1
    padding: tuple[int, int, int, int] = (1, 1, 1, 1)
    residual: bool = False
    bare: bool = False

    @property
    def inputs(self) -> list[np.ndarray]:
        return [normal(1, self.depth, self.height, self.width)]

    def build(self, builder: relax.BlockBuilder, x: relax.Var) -> relax.Var:
        """Every convolution with a bias; a sigmoid reads what it multiplies, so that it is read twice.

        A bare chain has nothing but the convolutions.
        """
        emit = builder.emit
        first = emit(relax.op.nn.conv2d(x, weight(self.channels, self.depth, 1, 1)))
        if not self.bare:
            first = emit(relax.op.add(first, weight(1, self.channels, 1, 1, seed=2)))
            first = emit(relax.op.multiply(first, emit(relax.op.sigmoid(first))))
        window = weight(self.channels, 1, self.kernel, self.kernel, seed=3)
        second = emit(
            relax.op.nn.conv2d(
                first,
                window,
                strides=self.stride,
                padding=self.padding,
                dilation=self.dilation,
                groups=self.channels,
            )
        )
        if self.bare:
            return emit(relax.op.nn.conv2d(second, weight(self.out, self.channels, 1, 1, seed=5)))
        result = emit(relax.op.nn.relu(emit(relax.op.add(second, weight(1, self.channels, 1, 1, seed=4)))))
        if self.out:
            result = emit(relax.op.nn.conv2d(result, weight(self.out, self.channels, 1, 1, seed=5)))
            result = emit(relax.op.add(result, weight(1, self.out, 1, 1, seed=6)))
        else:
            # As in a squeeze-and-excite block: the result is read twice.
            mean = emit(relax.op.mean(result, axis=[2, 3], keepdims=True))
            result = emit(relax.op.multiply(result, emit(relax.op.sigmoid(mean))))
        return emit(relax.op.add(result, x)) if self.residual else result


def small_board(near_bytes: int) -> Board:
    """A processor with a second level of cache of that size."""
    found = board(8)
    levels = (
        MemoryLevel("L1", 1 << 10, 1e11, 1e-9),
        MemoryLevel("L2", near_bytes, 5e10, 4e-9),
        MemoryLevel("DRAM", 0, 1e9, 1e-7),
    )
    return replace(found, hardware=replace(found.hardware, levels=levels))


def _lowered(shape: Shape, near_bytes: int = 16 << 10, rows: int | None = None) -> LoweredModel:
    model = imported(relax_module(shape.build, shape.inputs))
    found = lower(model, small_board(near_bytes))
    if rows is None:
        return found
    [site] = _sites(found)
    return lower(model, small_board(near_bytes), decisions={site.name: rows})


def _sites(model: LoweredModel) -> list[Site]:
    return [site for site in model.sites if site.kind == "bands"]


def _kernels(model: LoweredModel) -> list[str]:
    return [call.kernel for call in model.calls.calls]


def _is_equal(shape: Shape, model: LoweredModel) -> None:
    [wanted] = run(relax_module(shape.build, shape.inputs), shape.inputs)
    [found] = run_lowered(model, shape.inputs)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


SHAPES = {
    "5x5 with stride 2": Shape(height=14, kernel=5, stride=2, padding=(2, 2, 2, 2)),
    "rows that bands do not divide": Shape(height=13),
    "padding behind alone": Shape(height=12, stride=2, padding=(0, 0, 1, 1)),
    "dilation": Shape(height=14, dilation=2, padding=(2, 2, 2, 2)),
    "two parts with stride 2": Shape(out=0, height=11, stride=2),
}
MORE_SHAPES = {
    "stride 1": Shape(),
    "stride 2": Shape(stride=2),
    "no padding": Shape(padding=(0, 0, 0, 0)),
    "residual": Shape(residual=True),
    "two parts": Shape(out=0),
}


@pytest.mark.parametrize(
    "shape",
    [
        *(pytest.param(shape, id=name) for name, shape in SHAPES.items()),
        *(pytest.param(shape, id=name, marks=pytest.mark.long) for name, shape in MORE_SHAPES.items()),
    ],
)
def test_any_bands_compute_the_same(shape: Shape) -> None:
    [site] = _sites(_lowered(shape))
    for rows in site.options[1:]:
        model = _lowered(shape, rows=rows)
        assert any("chain" in kernel for kernel in _kernels(model)), rows
        _is_equal(shape, model)
    assert "chain" not in " ".join(_kernels(_lowered(shape, rows=0)))


def test_functions_stay_apart_where_the_cache_holds_what_lies_between() -> None:
    [site] = _sites(_lowered(Shape(), near_bytes=1 << 20))
    assert site.taken == site.own == 0
    [site] = _sites(_lowered(Shape(height=200, width=60, channels=32), near_bytes=256 << 10))
    assert site.own > 0


def test_the_layers_of_a_chain_are_those_of_its_convolutions() -> None:
    apart, chained = (
        _lowered(Shape(), rows=0),
        _lowered(Shape(), rows=_sites(_lowered(Shape()))[0].options[-1]),
    )
    assert {layer for task in apart.tasks for layer in task.layers} == {
        layer for task in chained.tasks for layer in task.layers
    }


IMPOSSIBLE = {
    "more rows of zeros than a band moves on": Shape(padding=(9, 1, 9, 1)),
    "no band smaller than the image": Shape(height=3),
    # Of three rows the last band of two has to move on by one only, less than the rows of zeros.
    "last band that starts before the image": Shape(height=7, kernel=5, stride=2, padding=(3, 2, 0, 2)),
    "the same of all padding before it": Shape(height=9, kernel=5, stride=3, padding=(4, 2, 0, 2)),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_what_bands_cannot_be_made_of_has_no_decision(name: str) -> None:
    model = _lowered(IMPOSSIBLE[name])
    assert not _sites(model)
    assert "chain" not in " ".join(_kernels(model))


def test_padding_leaves_large_bands_only() -> None:
    [few] = _sites(_lowered(Shape(height=24, kernel=7, padding=(6, 3, 0, 3)), 64 << 10))
    [more] = _sites(_lowered(Shape(height=24, kernel=7, padding=(3, 3, 3, 3)), 64 << 10))
    assert few.options == (0, 6, 12)
    assert len(more.options) > len(few.options)


def _unmade_rows(bands: Bands) -> list[tuple[int, int]]:
    """Band and row of all that the second part reads and that is neither of the image nor zero."""
    found = []
    for band in range(bands.count):
        first, start, place = (int(one) for one in (bands.first(band), bands.start(band), bands.place(band)))
        assert first >= 0 and first + bands.rows <= bands.made
        assert start >= 0 and start + bands.read <= bands.height
        assert place >= 0 and place + bands.read <= bands.stored
        # Of the buffer: the row of the image that each holds; zeros are written behind it.
        held: dict[int, int | None] = {place + row: start + row for row in range(bands.read)}
        for zeros in bands.zeros:
            if zeros.band == band:
                held |= dict.fromkeys(range(zeros.first, zeros.first + zeros.count))
        for row in range(bands.read):
            wanted = first * bands.stride - bands.padding + row
            inside = 0 <= wanted < bands.height
            if held.get(bands.over + row, -1) != (wanted if inside else None):
                found.append((band, row))
    return found


def test_every_row_that_a_band_reads_is_of_the_image_or_zero() -> None:
    generator = random.Random(1)
    possible = 0
    while possible < 1000:
        kernel, stride = generator.randint(1, 7), generator.randint(1, 4)
        before, behind = generator.randint(0, kernel), generator.randint(0, kernel)
        height = generator.randint(kernel, 24)
        made = (height + before + behind - kernel) // stride + 1
        bands = Bands(height, made, generator.randint(1, made), kernel, stride, before)
        if bands.possible:
            possible += 1
            assert not _unmade_rows(bands), bands


def test_a_result_that_others_read_is_made_whole() -> None:
    def build(builder: relax.BlockBuilder, x: relax.Var) -> Sequence[relax.Var]:
        first = builder.emit(relax.op.nn.conv2d(x, weight(16, 8, 1, 1)))
        second = builder.emit(relax.op.nn.conv2d(first, weight(16, 1, 3, 3, seed=3), padding=1, groups=16))
        return builder.emit(relax.op.add(first, second))

    model = lower(imported(relax_module(build, Shape().inputs)), small_board(16 << 10))
    assert not _sites(model)


def test_a_product_between_two_depthwise_convolutions_is_of_one_chain() -> None:
    def build(builder: relax.BlockBuilder, x: relax.Var) -> relax.Var:
        result = builder.emit(relax.op.nn.conv2d(x, weight(16, 8, 1, 1)))
        for seed in (3, 5):
            window = weight(16, 1, 3, 3, seed=seed)
            result = builder.emit(relax.op.nn.conv2d(result, window, padding=1, groups=16))
            result = builder.emit(relax.op.nn.conv2d(result, weight(16, 16, 1, 1, seed=seed + 1)))
        return result

    model = imported(relax_module(build, Shape().inputs))
    apart = lower(model, small_board(16 << 10))
    one, two = _sites(apart)
    assert one.own == two.own == 0
    first = lower(model, small_board(16 << 10), decisions={one.name: one.options[-1]})
    assert [site.name for site in _sites(first)] == [one.name]
    assert " ".join(_kernels(first)).count("chain") == 1
    second = lower(model, small_board(16 << 10), decisions={two.name: two.options[-1]})
    assert [site.name for site in _sites(second)] == [one.name, two.name]
    assert len(_kernels(first)) == len(_kernels(second)) == len(_kernels(apart)) - 2


@pytest.mark.parametrize("again", [False, True])
def test_a_flat_tensor_of_which_two_parts_make_images_of_other_widths(again: bool) -> None:
    """9x8 pixels become 8x9, and the pixels of the input are added to those of the result, one by one."""

    def build(builder: relax.BlockBuilder, x: relax.Var) -> relax.Var:
        emit = builder.emit
        first = emit(relax.op.matmul(x, weight(8, 16)))
        image = emit(relax.op.permute_dims(emit(relax.op.reshape(first, (1, 9, 8, 16))), [0, 3, 1, 2]))
        window = weight(16, 1, 2, 2, seed=3)
        second = emit(relax.op.nn.conv2d(image, window, padding=(0, 1, 0, 1), groups=16))
        flat = emit(relax.op.reshape(emit(relax.op.permute_dims(second, [0, 2, 3, 1])), (1, 72, 16)))
        third = emit(relax.op.matmul(flat, weight(16, 8, seed=5)))
        return emit(relax.op.add(third, x)) if again else third

    model = lower(imported(relax_module(build, [normal(1, 72, 8)])), small_board(16 << 10))
    assert len(_sites(model)) == (0 if again else 1)


def test_a_number_of_rows_that_is_none_of_the_options_is_refused() -> None:
    with pytest.raises(LoweringError, match="none of 0, "):
        _lowered(Shape(), rows=11)
