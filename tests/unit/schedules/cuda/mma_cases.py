"""Products of halves with arguments and results, as the lowering writes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import te, tirx

from tests.unit.schedules import functions as fn
from tests.unit.schedules.cuda.cuda_cases import Case, grouped_numpy

_GENERATOR = np.random.default_rng(0)
# Of the element (batch, row, column, depth) of an operand.
Place = Callable[..., tuple[Any, ...]]


def drawn(*shape: int, dtype: str = "float16") -> np.ndarray:
    """Normal numbers."""
    return _GENERATOR.standard_normal(shape).astype(dtype)


def widened(source: te.Tensor, name: str) -> te.Tensor:
    """Halves in single precision, as a stage of its own."""
    return te.compute(source.shape, lambda *index: source(*index).astype("float32"), name=name)


def product(
    left: tuple[int, ...],
    right: tuple[int, ...],
    shape: tuple[int, ...],
    depth: int,
    places: tuple[Place, Place],
    ending: Callable[..., Any] | None = None,
    others: tuple[te.Tensor, ...] = (),
    kept: tuple[int, ...] | None = None,
) -> tirx.PrimFunc:
    """A product of two arguments of halves.

    Args:
        left, right: shapes of the arguments.
        shape: of the product.
        depth: terms of each sum.
        places: of the elements of both arguments, by the indices of the product and that of the term.
        ending: what becomes of the product at some indices; None leaves it as it is.
        others: further arguments.
        kept: shape of the result, if it is less.
    """
    a, b = te.placeholder(left, "float16", "A"), te.placeholder(right, "float16", "B")
    wide_a, wide_b = widened(a, "widened0"), widened(b, "widened1")
    k = te.reduce_axis((0, depth), "k")

    def summed(*index: Any) -> Any:
        return te.sum(wide_a(*places[0](*index, k)) * wide_b(*places[1](*index, k)), axis=[k])

    result = te.compute(shape, summed, name="matmul")
    if ending is not None:
        result = te.compute(kept or shape, lambda *index: ending(result, *index), name="epilogue")
    return te.create_prim_func([a, b, *others, result])


def dense(rows: int, columns: int, depth: int, lanes: int = 32, kept: int = 0) -> tirx.PrimFunc:
    """A product with packed weights, a bias and a ReLU, rounded to halves; `kept` of the columns."""
    bias = te.placeholder((kept or columns,), "float32", "bias")
    return product(
        (rows, depth),
        (columns // lanes, depth, lanes),
        (rows, columns),
        depth,
        (lambda i, j, k: (i, k), lambda i, j, k: (j // lanes, k, j % lanes)),
        lambda result, i, j: te.max(result[i, j] + bias[j], tirx.const(0.0, "float32")).astype("float16"),
        (bias,),
        (rows, kept or columns),
    )


def batched(
    heads: int, rows: int, columns: int, depth: int, transposed: bool = False, half: bool = True
) -> tirx.PrimFunc:
    """Products of two activations; `transposed` has the columns of the second one as rows."""
    second: Place = (lambda b, i, j, k: (b, j, k)) if transposed else (lambda b, i, j, k: (b, k, j))
    return product(
        (heads, rows, depth),
        (heads, columns, depth) if transposed else (heads, depth, columns),
        (heads, rows, columns),
        depth,
        (lambda b, i, j, k: (b, i, k), second),
        (lambda result, *index: (result(*index) * 0.5).astype("float16")) if half else None,
    )


def swapped(rows: int, columns: int, depth: int) -> tirx.PrimFunc:
    """A product whose first operand lies with its rows side by side."""
    places = (lambda i, j, k: (k, i), lambda i, j, k: (k, j))
    return product((depth, rows), (depth, columns), (rows, columns), depth, places)


def residual(images: int, length: int, columns: int, depth: int, lanes: int = 32) -> tirx.PrimFunc:
    """A product whose rows are two axes, with another tensor of halves added, in two stages."""
    a = te.placeholder((images, length, depth), "float16", "A")
    b = te.placeholder((columns // lanes, depth, lanes), "float16", "B")
    other = te.placeholder((images, length, columns), "float16", "other")
    wide_a, wide_b = widened(a, "widened0"), widened(b, "widened1")
    k = te.reduce_axis((0, depth), "k")
    shape = (images, length, columns)
    result = te.compute(
        shape,
        lambda n, i, j: te.sum(wide_a[n, i, k] * wide_b[j // lanes, k, j % lanes], axis=[k]),
        name="matmul",
    )
    shared = te.compute(shape, lambda *index: result(*index) * 2.0, name="shared")
    ending = te.compute(
        shape,
        lambda *index: (shared(*index) * shared(*index) + other(*index).astype("float32")).astype("float16"),
        name="epilogue",
    )
    return te.create_prim_func([a, b, other, ending])


def convolution(
    size: int, depth: int, columns: int, kernel: int, stride: int, lanes: int = 32, image: str = "float16"
) -> tirx.PrimFunc:
    """NHWC convolution with packed weights, padded with zeros to keep the size, then a ReLU.

    An `image` in single precision is what a first layer reads.
    """
    pad, zero = kernel // 2, tirx.const(0.0, "float32")
    a = te.placeholder((1, size, size, depth), image, "A")
    w = te.placeholder((columns // lanes, kernel, kernel, depth, lanes), "float16", "W")
    wide_a, wide_w = widened(a, "widened0"), widened(w, "widened1")
    padded = te.compute(
        (1, size + 2 * pad, size + 2 * pad, depth),
        lambda n, h, x, c: tirx.if_then_else(
            tirx.all(h >= pad, h < size + pad, x >= pad, x < size + pad), wide_a[n, h - pad, x - pad, c], zero
        ),
        name="pad_temp",
    )
    axes = [
        te.reduce_axis((0, extent), name) for name, extent in (("kh", kernel), ("kw", kernel), ("ic", depth))
    ]
    kh, kw, ic = axes
    out = (size + 2 * pad - kernel) // stride + 1
    shape = (1, out, out, columns)
    summed = te.compute(
        shape,
        lambda n, h, x, o: te.sum(
            padded[n, h * stride + kh, x * stride + kw, ic] * wide_w[o // lanes, kh, kw, ic, o % lanes],
            axis=axes,
        ),
        name="conv2d",
    )
    ending = te.compute(shape, lambda *i: te.max(summed(*i), zero).astype("float16"), name="epilogue")
    return te.create_prim_func([a, w, ending])


def in_groups(
    size: int, groups: int, depth: int, columns: int, stride: int = 1, kernel: int = 3
) -> tirx.PrimFunc:
    """Convolution in groups, padded with zeros to keep the size, then a bias; `columns` of each group."""
    zero, lanes, pad = tirx.const(0.0, "float32"), group_lanes(columns), kernel // 2
    a = te.placeholder((1, size, size, groups * depth), "float16", "A")
    w = te.placeholder((groups, columns // lanes, kernel, kernel, depth, lanes), "float16", "W")
    bias = te.placeholder((groups * columns,), "float32", "bias")
    wide_a, wide_w = widened(a, "widened0"), widened(w, "widened1")
    padded = te.compute(
        (1, size + 2 * pad, size + 2 * pad, groups * depth),
        lambda n, h, x, c: tirx.if_then_else(
            tirx.all(h >= pad, h < size + pad, x >= pad, x < size + pad), wide_a[n, h - pad, x - pad, c], zero
        ),
        name="pad_temp",
    )
    extents = (("kh", kernel), ("kw", kernel), ("ic", depth))
    axes = [te.reduce_axis((0, extent), name) for name, extent in extents]

    def element(n: Any, h: Any, x: Any, o: Any) -> Any:
        group, inner = o // columns, o % columns
        data = padded[n, h * stride + axes[0], x * stride + axes[1], group * depth + axes[2]]
        return te.sum(data * wide_w[group, inner // lanes, *axes, inner % lanes], axis=axes)

    out = -(-size // stride)
    shape = (1, out, out, groups * columns)
    summed = te.compute(shape, element, name="grouped_conv2d")
    ending = te.compute(shape, lambda *i: (summed(*i) + bias[i[-1]]).astype("float16"), name="epilogue")
    return te.create_prim_func([a, w, bias, ending])


def group_lanes(columns: int) -> int:
    """Columns of a group that lie side by side: eight of them, or all where eight do not divide them."""
    return columns if columns % 8 else 8


def filled(rows: int, columns: int, depth: int, kept: int, fill: float = 0.0) -> tirx.PrimFunc:
    """A product whose first operand is filled up along the depth."""
    a, b = te.placeholder((rows, kept), "float16", "A"), te.placeholder((depth, columns), "float16", "B")
    nothing = tirx.const(fill, "float32")
    whole = te.compute(
        (rows, depth),
        lambda i, k: tirx.if_then_else(k < kept, a[i, k].astype("float32"), nothing),
        name="filled",
    )
    wide_b, k = widened(b, "widened1"), te.reduce_axis((0, depth), "k")
    result = te.compute(
        (rows, columns), lambda i, j: te.sum(whole[i, k] * wide_b[k, j], axis=[k]), name="matmul"
    )
    return te.create_prim_func([a, b, result])


def unpacked(weight: np.ndarray) -> np.ndarray:
    """Packed weights as a matrix, [K, N]."""
    blocks, depth, lanes = weight.shape
    return weight.transpose(1, 0, 2).reshape(depth, blocks * lanes).astype("float64")


def dense_case(rows: int, columns: int, depth: int, lanes: int = 32, kept: int = 0) -> Case:
    a, w = drawn(rows, depth), drawn(columns // lanes, depth, lanes)
    bias = drawn(kept or columns, dtype="float32")
    wanted = np.maximum(a.astype("float64") @ unpacked(w)[:, : kept or columns] + bias, 0)
    return Case(dense(rows, columns, depth, lanes, kept), (a, w, bias), wanted.astype("float16"))


def _rounded_case(size: int) -> Case:
    """A square product with nothing behind it but the rounding to halves."""
    function = product(
        (size, size),
        (size // 32, size, 32),
        (size, size),
        size,
        (lambda i, j, k: (i, k), lambda i, j, k: (j // 32, k, j % 32)),
        lambda result, i, j: result[i, j].astype("float16"),
    )
    a, w = drawn(size, size), drawn(size // 32, size, 32)
    wanted = a.astype("float64") @ unpacked(w).astype("float64")
    return Case(function, (a, w), wanted.astype("float16"))


def _batched_case(
    heads: int, rows: int, columns: int, depth: int, transposed: bool = False, half: bool = True
) -> Case:
    a = drawn(heads, rows, depth)
    b = drawn(heads, columns, depth) if transposed else drawn(heads, depth, columns)
    matrix = b.astype("float64").transpose(0, 2, 1) if transposed else b.astype("float64")
    wanted = a.astype("float64") @ matrix
    made = (wanted * 0.5).astype("float16") if half else wanted.astype("float32")
    return Case(batched(heads, rows, columns, depth, transposed, half), (a, b), made)


def _swapped_case(rows: int, columns: int, depth: int) -> Case:
    a, b = drawn(depth, rows), drawn(depth, columns)
    wanted = a.astype("float64").T @ b.astype("float64")
    return Case(swapped(rows, columns, depth), (a, b), wanted.astype("float32"))


def _residual_case(images: int, length: int, columns: int, depth: int) -> Case:
    a, w = drawn(images, length, depth), drawn(columns // 32, depth, 32)
    a /= 8
    other = drawn(images, length, columns)
    wanted = (2 * (a.astype("float64") @ unpacked(w))) ** 2 + other
    return Case(residual(images, length, columns, depth), (a, w, other), wanted.astype("float16"))


def convolution_case(
    size: int, depth: int, columns: int, kernel: int, stride: int, lanes: int = 32, image: str = "float16"
) -> Case:
    a, w = drawn(1, size, size, depth, dtype=image), drawn(columns // lanes, kernel, kernel, depth, lanes)
    nothing = np.zeros(columns, "float32")
    # An image in single precision is rounded to halves.
    read = a.astype("float16").astype("float32")
    wanted = fn.convolution_numpy(read, w.astype("float32"), nothing, stride)
    function = convolution(size, depth, columns, kernel, stride, lanes, image)
    return Case(function, (a, w), np.maximum(wanted, 0).astype("float16"))


def _filled_case(rows: int, columns: int, depth: int, kept: int) -> Case:
    a, b = drawn(rows, kept), drawn(depth, columns)
    wanted = a.astype("float64") @ b[:kept].astype("float64")
    return Case(filled(rows, columns, depth, kept), (a, b), wanted.astype("float32"))


def groups_case(size: int, groups: int, depth: int, columns: int, stride: int = 1, kernel: int = 3) -> Case:
    lanes, pad = group_lanes(columns), kernel // 2
    a = drawn(1, size, size, groups * depth)
    w = drawn(groups, columns // lanes, kernel, kernel, depth, lanes)
    bias = drawn(groups * columns, dtype="float32")
    padded = np.pad(a.astype("float64"), ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    wanted = grouped_numpy(padded, w.astype("float64"))[:, ::stride, ::stride] + bias
    function = in_groups(size, groups, depth, columns, stride, kernel)
    return Case(function, (a, w, bias), wanted.astype("float16"))


def mma_cases() -> dict[str, Case]:
    """Small products of every form."""
    return {
        "whole tiles": dense_case(64, 64, 64),
        "rounded": _rounded_case(64),
        "ragged": dense_case(23, 48, 40, 16),
        "many steps": dense_case(16, 32, 330),
        "columns left out": dense_case(37, 64, 72, 32, 50),
        "one column of four": dense_case(37, 4, 72, 4, 1),
        "one row": dense_case(1, 64, 128),
        "10 columns": dense_case(21, 10, 72, 10),
        "2 columns, one row": dense_case(1, 2, 330, 2),
        "wide": dense_case(48, 288, 32),
        "scores": _batched_case(2, 24, 24, 64),
        "scores of rows": _batched_case(2, 37, 37, 64, transposed=True),
        "values": _batched_case(3, 37, 64, 37),
        "values of even length": _batched_case(2, 38, 32, 38, half=False),
        "swapped": _swapped_case(40, 56, 33),
        "residual": _residual_case(2, 19, 64, 48),
        "convolution": convolution_case(7, 32, 32, 3, 1),
        "convolution stride 2, 12 channels": convolution_case(9, 12, 48, 3, 2, 16),
        "first convolution": convolution_case(9, 3, 32, 3, 2, image="float32"),
        "convolution, 3 columns": convolution_case(9, 24, 3, 3, 1, 3),
        "convolution 1x1": convolution_case(6, 40, 32, 1, 1),
        "groups": groups_case(6, 3, 16, 24),
        "groups of 20 channels": groups_case(5, 2, 20, 16),
        "groups of 4 channels": groups_case(6, 8, 4, 4),
        "groups of 4 channels, stride 2, the last product not whole": groups_case(7, 6, 4, 4, 2),
        "groups of 8 channels": groups_case(5, 4, 8, 8),
        "groups of 8 channels, stride 2, the last product not whole": groups_case(6, 3, 8, 8, 2),
        "groups of 12 channels": groups_case(5, 3, 12, 12),
        "groups of 6 channels, 10 columns": groups_case(5, 3, 6, 10),
        "groups of 6 channels, 5 in all": groups_case(5, 5, 6, 6),
        "groups of 3 channels": groups_case(5, 7, 3, 3),
        "groups of 2 channels, 4 columns, 5x5": groups_case(5, 5, 2, 4, 1, 5),
        "groups of 24 channels, 4 columns, 1x1": groups_case(5, 5, 24, 4, 1, 1),
        "filled up": _filled_case(20, 32, 40, 37),
    }
