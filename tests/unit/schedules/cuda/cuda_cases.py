"""Functions of every operator kind with arguments and results, and boards with a GPU to schedule them for."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import tvm
from tvm import te, tirx

from targets import Board, GpuModel
from targets.nvidia import ORIN_NANO
from tests.unit.schedules import functions as fn


@dataclass(frozen=True, eq=False)
class Case:
    """A function, its inputs and its output."""

    function: tirx.PrimFunc
    inputs: tuple[np.ndarray, ...]
    output: np.ndarray


def gpu_board(gpu: GpuModel = ORIN_NANO) -> Board:
    """A board whose programs run on a GPU."""
    return replace(fn.board(), gpu=gpu).on_gpu()


def gpu_target(gpu: GpuModel = ORIN_NANO) -> tvm.target.Target:
    """The target of `gpu_board`."""
    return tvm.target.Target(gpu_board(gpu).tvm_target)


def grouped(size: int, groups: int, depth: int, columns: int, lanes: int = 8, kept: int = 0) -> tirx.PrimFunc:
    """3x3 convolution in groups without padding, weights packed by `lanes`; all columns of each or `kept`."""
    a = te.placeholder((1, size, size, groups * depth), name="A")
    w = te.placeholder((groups, columns // lanes, 3, 3, depth, lanes), name="W")
    kh, kw = te.reduce_axis((0, 3), name="kh"), te.reduce_axis((0, 3), name="kw")
    ic = te.reduce_axis((0, depth), name="ic")

    def element(n: tirx.Var, h: tirx.Var, x: tirx.Var, o: tirx.Var) -> tirx.PrimExpr:
        group, inner = o // columns, o % columns
        data = a[n, h + kh, x + kw, group * depth + ic]
        return te.sum(data * w[group, inner // lanes, kh, kw, ic, inner % lanes], axis=[kh, kw, ic])

    result = te.compute((1, size - 2, size - 2, groups * columns), element, "grouped_conv2d")
    if kept:
        result = te.compute(
            (1, size - 2, size - 2, groups * kept),
            lambda n, h, x, o: te.max(result[n, h, x, o // kept * columns + o % kept], 0.0),
            "kept",
        )
    return te.create_prim_func([a, w, result])


def one_column_groups(size: int, groups: int, depth: int) -> tirx.PrimFunc:
    """3x3 convolution in groups of one column each, padded to keep the size, then a ReLU."""
    a = te.placeholder((1, size, size, groups * depth), name="A")
    w = te.placeholder((groups, 1, 3, 3, depth, 1), name="W")
    inside = lambda place: tirx.all(place >= 1, place < size + 1)  # noqa: E731
    padded = te.compute(
        (1, size + 2, size + 2, groups * depth),
        lambda n, h, x, c: tirx.if_then_else(
            tirx.all(inside(h), inside(x)), a[n, h - 1, x - 1, c], tirx.const(0.0, "float32")
        ),
        name="padded",
    )
    kh, kw = te.reduce_axis((0, 3), name="kh"), te.reduce_axis((0, 3), name="kw")
    ic = te.reduce_axis((0, depth), name="ic")
    result = te.compute(
        (1, size, size, groups),
        lambda n, h, x, o: te.sum(
            padded[n, h + kh, x + kw, o * depth + ic] * w[o, 0, kh, kw, ic, 0], axis=[kh, kw, ic]
        ),
        name="grouped_conv2d",
    )
    made = te.compute(result.shape, lambda *i: te.max(result(*i), tirx.const(0.0, "float32")), name="relu")
    return te.create_prim_func([a, w, made])


def kept_numpy(result: np.ndarray, groups: int, kept: int) -> np.ndarray:
    """The first `kept` columns of every group, if they are positive."""
    parts = np.split(result, groups, axis=-1)
    return np.maximum(np.concatenate([part[..., :kept] for part in parts], axis=-1), 0)


def grouped_numpy(a: np.ndarray, w: np.ndarray) -> np.ndarray:
    """What `grouped` computes."""
    groups, blocks, kernel, _, depth, lanes = w.shape
    flat = w.transpose(0, 2, 3, 4, 1, 5).reshape(groups, kernel, kernel, depth, blocks * lanes)
    out, taps = a.shape[1] - kernel + 1, list(np.ndindex(kernel, kernel))
    parts = []
    for group in range(groups):
        own = a[..., group * depth : (group + 1) * depth]
        parts.append(sum(own[:, i : i + out, j : j + out] @ flat[group, i, j] for i, j in taps))
    return np.concatenate(parts, axis=-1)


def pooling(size: int, channels: int) -> tirx.PrimFunc:
    """Maximum over 2x2 with stride 2."""
    a = te.placeholder((1, size, size, channels), name="A")
    kh, kw = te.reduce_axis((0, 2), name="kh"), te.reduce_axis((0, 2), name="kw")
    shape = (1, size // 2, size // 2, channels)
    out = te.compute(
        shape, lambda n, h, x, c: te.max(a[n, h * 2 + kh, x * 2 + kw, c], axis=[kh, kw]), name="max"
    )
    return te.create_prim_func([a, out])


def layer_norm(*shape: int) -> tirx.PrimFunc:
    """Normalisation of the last axis in two passes, with a scale."""
    a, scale = te.placeholder(shape, name="A"), te.placeholder(shape[-1:], name="S")
    share = tirx.const(1.0 / shape[-1], "float32")
    k, m = te.reduce_axis((0, shape[-1]), name="k"), te.reduce_axis((0, shape[-1]), name="m")
    mean = te.compute(shape[:-1], lambda *i: te.sum(a[(*i, k)] * share, axis=k), name="mean")
    variance = te.compute(
        shape[:-1],
        lambda *i: te.sum((a[(*i, m)] - mean[i]) * (a[(*i, m)] - mean[i]) * share, axis=m),
        name="variance",
    )
    small = tirx.const(1e-5, "float32")
    out = te.compute(
        shape,
        lambda *i: (a[i] - mean[i[:-1]]) * tirx.rsqrt(variance[i[:-1]] + small) * scale[i[-1]],
        name="normalised",
    )
    return te.create_prim_func([a, scale, out])


def layer_norm_numpy(a: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """What `layer_norm` computes."""
    return (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + 1e-5) * scale


def total(*shape: int) -> tirx.PrimFunc:
    """Sum over the last axis, without a stage after it."""
    a, k = te.placeholder(shape, name="A"), te.reduce_axis((0, shape[-1]), name="k")
    return te.create_prim_func(
        [a, te.compute(shape[:-1], lambda *i: te.sum(a[(*i, k)], axis=k), name="total")]
    )


def widened_total(rows: int, length: int, width: int) -> tirx.PrimFunc:
    """Sum over rows that a stage before it fills up with zeros."""
    a, k = te.placeholder((rows, length), name="A"), te.reduce_axis((0, width), name="k")
    row = te.compute((rows, width), lambda i, j: tirx.if_then_else(j < length, a[i, j], fn.ZERO), name="row")
    return te.create_prim_func([a, te.compute((rows,), lambda i: te.sum(row[i, k], axis=k), name="total")])


def cases() -> dict[str, Case]:
    """Small functions of every kind."""
    generator = np.random.default_rng(0)

    def draw(*shape: int) -> np.ndarray:
        return generator.standard_normal(shape).astype("float32")

    a, w = draw(23, 40), draw(3, 40, 16)
    conv, weights, bias = draw(1, 8, 8, 16), draw(1, 3, 3, 16, 32), draw(32)
    odd, odd_weights = draw(1, 9, 9, 5), draw(2, 3, 3, 5, 16)
    point = draw(1, 1, 1, 16, 32)
    deep, deep_weights = draw(1, 12, 12, 24), draw(3, 3, 24)
    left, right, square = draw(3, 7, 20), draw(3, 20, 37), draw(10, 7, 7)
    in_groups, group_weights = draw(1, 7, 7, 12), draw(3, 2, 3, 3, 4, 8)
    odd_groups = draw(3, 1, 3, 3, 4, 12)
    narrow, own_weights = draw(1, 6, 6, 20), draw(5, 1, 3, 3, 4, 1)
    surrounded = np.pad(narrow, ((0, 0), (1, 1), (1, 1), (0, 0)))
    wide, rows, norm, scale = draw(1, 8, 8, 12), draw(2, 5, 37), draw(3, 7, 64), draw(64)
    one, other, permuted = draw(1, 7, 13, 4), draw(1, 7, 13, 4), draw(1, 6, 4, 16)
    pooled = wide.reshape(1, 4, 2, 4, 2, 12).max((2, 4))
    return {
        "dense": Case(fn.dense(23, 48, 40), (a, w), fn.dense_numpy(a, w)),
        "convolution": Case(
            fn.convolution(8, 16, 32, 3, 1, 32),
            (conv, weights, bias),
            fn.convolution_numpy(conv, weights, bias, 1),
        ),
        "convolution stride 2, 5 channels": Case(
            fn.convolution(9, 5, 32, 3, 2),
            (odd, odd_weights, bias),
            fn.convolution_numpy(odd, odd_weights, bias, 2),
        ),
        "convolution 1x1": Case(
            fn.convolution(8, 16, 32, 1, 1, 32),
            (conv, point, bias),
            fn.convolution_numpy(conv, point, bias, 1),
        ),
        "depthwise": Case(
            fn.depthwise(12, 24, 1), (deep, deep_weights), fn.depthwise_numpy(deep, deep_weights, 1)
        ),
        "depthwise stride 2": Case(
            fn.depthwise(12, 24, 2), (deep, deep_weights), fn.depthwise_numpy(deep, deep_weights, 2)
        ),
        "grouped": Case(
            grouped(7, 3, 4, 16), (in_groups, group_weights), grouped_numpy(in_groups, group_weights)
        ),
        "grouped by 12": Case(
            grouped(7, 3, 4, 12, 12), (in_groups, odd_groups), grouped_numpy(in_groups, odd_groups)
        ),
        "groups of one column": Case(
            one_column_groups(6, 5, 4),
            (narrow, own_weights),
            np.maximum(grouped_numpy(surrounded, own_weights), 0),
        ),
        "batched": Case(fn.batched(3, 7, 37, 20), (left, right), left @ right),
        "pooling": Case(pooling(8, 12), (wide,), pooled),
        "pooling of 5 channels": Case(
            pooling(8, 5), (np.ascontiguousarray(wide[..., :5]),), np.ascontiguousarray(pooled[..., :5])
        ),
        "softmax": Case(fn.softmax(2, 5, 37), (rows,), fn.softmax_numpy(rows)),
        "softmax, lowered": Case(fn.lowered_softmax(2, 5, 37), (rows,), fn.softmax_numpy(rows)),
        "mean, lowered": Case(fn.lowered_mean(10, 7, 7), (square,), square.mean((1, 2), keepdims=True)),
        "layer norm": Case(layer_norm(3, 7, 64), (norm, scale), layer_norm_numpy(norm, scale)),
        "total": Case(total(3, 7, 64), (norm,), norm.sum(-1)),
        "total of filled rows": Case(
            widened_total(10, 37, 64), (rows.reshape(10, 37),), rows.reshape(10, 37).sum(-1)
        ),
        "addition": Case(fn.addition(1, 7, 13, 4), (one, other), np.maximum(one + other, 0)),
        "transpose": Case(
            fn.transpose((1, 6, 4, 16), (0, 2, 3, 1)), (permuted,), permuted.transpose(0, 2, 3, 1)
        ),
    }
