"""TensorIR functions of the kinds that lowering makes, small, and what they compute in numpy."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, s_tir, te, tirx

from host.lowering.tasks import workload_hash
from host.model import Task
from host.schedules import DesignSpace
from targets import Board, MachineDescription, board_for
from tests.unit.lowering.harness import lowered

ZERO = tirx.const(0, "float32")
_CPU = Path("/proc/cpuinfo")
HAS_AVX512 = _CPU.exists() and " avx512f" in _CPU.read_text(encoding="utf-8")


def board(restrict: str = "", cores: int = 1) -> Board:
    """An x86-64 board with AVX-512 as declared, or with AVX2 only."""
    features = ("avx2", "fma", "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
    caches = {"L1": 32 << 10, "L2": 1 << 20, "L3": 32 << 20}
    described = MachineDescription("x86_64", "test", cores, features, caches, 3.7e9, 8 << 30)
    found = board_for(described, restrict)
    assert found is not None
    return found


def task(function: tirx.PrimFunc, name: str = "task") -> Task:
    """The task of a function."""
    return Task(name, function, 1, workload_hash(function), 0.0)


def assert_its_trace_is_the_program(space: DesignSpace) -> None:
    """A program is its trace: applied to the unscheduled task, the trace gives the same program."""
    schedule = space.apply(space.candidate(space.sample(random.Random(7)), "random"))
    again = s_tir.Schedule(tvm.IRModule({"main": space.task.function}))
    schedule.trace.apply_to_schedule(again, remove_postproc=False)
    assert tvm_ffi.structural_equal(schedule.mod, again.mod)


def legal_values(space: DesignSpace) -> Iterator[dict[str, int]]:
    """All legal decisions of a space."""
    names = [decision.name for decision in space.decisions]
    for choice in itertools.product(*(decision.choices for decision in space.decisions)):
        values = dict(zip(names, choice, strict=True))
        if space.legal(values):
            yield values


def _function(*tensors: te.Tensor) -> tirx.PrimFunc:
    return te.create_prim_func(list(tensors))


def dense(rows: int, columns: int, depth: int, lanes: int = 16) -> tirx.PrimFunc:
    """Matrix product with packed weights, then ReLU."""
    a = te.placeholder((rows, depth), name="A")
    w = te.placeholder((columns // lanes, depth, lanes), name="W")
    k = te.reduce_axis((0, depth), name="k")
    c = te.compute(
        (rows, columns), lambda i, j: te.sum(a[i, k] * w[j // lanes, k, j % lanes], axis=k), name="matmul"
    )
    d = te.compute((rows, columns), lambda i, j: tirx.max(c[i, j], ZERO), name="relu")
    return _function(a, w, d)


def dense_numpy(a: np.ndarray, w: np.ndarray) -> np.ndarray:
    """What `dense` computes."""
    flat = w.transpose(1, 0, 2).reshape(w.shape[1], -1)
    return np.maximum(a @ flat, 0)


def batched(batch: int, rows: int, columns: int, depth: int) -> tirx.PrimFunc:
    """Product of two activations, without a stage after it."""
    a = te.placeholder((batch, rows, depth), name="A")
    b = te.placeholder((batch, depth, columns), name="B")
    k = te.reduce_axis((0, depth), name="k")
    c = te.compute(
        (batch, rows, columns), lambda n, i, j: te.sum(a[n, i, k] * b[n, k, j], axis=k), name="matmul"
    )
    return _function(a, b, c)


def convolution(
    size: int, depth: int, columns: int, kernel: int, stride: int, lanes: int = 16, images: int = 1
) -> tirx.PrimFunc:
    """NHWC convolution of a sum of images with packed weights, padded to keep the size, then a bias."""
    pad = kernel // 2
    first = te.placeholder((1, size, size, depth), name="A")
    others = [te.placeholder((1, size, size, depth), name=f"A{number}") for number in range(1, images)]

    def image(*position: tirx.PrimExpr) -> tirx.PrimExpr:
        return sum((one[position] for one in others), first[position])

    w = te.placeholder((columns // lanes, kernel, kernel, depth, lanes), name="W")
    bias = te.placeholder((columns,), name="B")
    padded = te.compute(
        (1, size + 2 * pad, size + 2 * pad, depth),
        lambda n, h, x, c: tirx.if_then_else(
            tirx.all(h >= pad, h < size + pad, x >= pad, x < size + pad), image(n, h - pad, x - pad, c), ZERO
        ),
        name="pad_temp",
    )
    kh, kw = te.reduce_axis((0, kernel), name="kh"), te.reduce_axis((0, kernel), name="kw")
    ic = te.reduce_axis((0, depth), name="ic")
    out = (size + 2 * pad - kernel) // stride + 1
    c = te.compute(
        (1, out, out, columns),
        lambda n, h, x, o: te.sum(
            padded[n, h * stride + kh, x * stride + kw, ic] * w[o // lanes, kh, kw, ic, o % lanes],
            axis=[kh, kw, ic],
        ),
        name="conv2d",
    )
    d = te.compute((1, out, out, columns), lambda n, h, x, o: c[n, h, x, o] + bias[o], name="add")
    return _function(first, *others, w, bias, d)


def convolution_numpy(a: np.ndarray, w: np.ndarray, bias: np.ndarray, stride: int) -> np.ndarray:
    """What `convolution` computes."""
    blocks, kernel, _, depth, lanes = w.shape
    flat = w.transpose(1, 2, 3, 0, 4).reshape(kernel, kernel, depth, blocks * lanes)
    pad = kernel // 2
    padded = np.pad(a, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    out = (padded.shape[1] - kernel) // stride + 1
    result = np.zeros((1, out, out, blocks * lanes), "float32") + bias
    for i in range(kernel):
        for j in range(kernel):
            window = padded[:, i : i + stride * out : stride, j : j + stride * out : stride]
            result += window @ flat[i, j]
    return result


def depthwise(size: int, channels: int, stride: int, kernel: int = 3) -> tirx.PrimFunc:
    """Depthwise convolution of a square window, padded to keep the size, then ReLU6."""
    pad = kernel // 2
    a = te.placeholder((1, size, size, channels), name="A")
    w = te.placeholder((kernel, kernel, channels), name="W")
    padded = te.compute(
        (1, size + 2 * pad, size + 2 * pad, channels),
        lambda n, h, x, c: tirx.if_then_else(
            tirx.all(h >= pad, h < size + pad, x >= pad, x < size + pad), a[n, h - pad, x - pad, c], ZERO
        ),
        name="pad_temp",
    )
    kh, kw = te.reduce_axis((0, kernel), name="kh"), te.reduce_axis((0, kernel), name="kw")
    out = (size - 1) // stride + 1
    c = te.compute(
        (1, out, out, channels),
        lambda n, h, x, o: te.sum(
            padded[n, h * stride + kh, x * stride + kw, o] * w[kh, kw, o], axis=[kh, kw]
        ),
        name="depthwise_conv2d",
    )
    six = tirx.const(6, "float32")
    d = te.compute((1, out, out, channels), lambda *i: tirx.max(tirx.min(c[i], six), ZERO), name="relu6")
    return _function(a, w, d)


def depthwise_numpy(a: np.ndarray, w: np.ndarray, stride: int) -> np.ndarray:
    """What `depthwise` computes."""
    kernel = w.shape[0]
    pad = kernel // 2
    padded = np.pad(a, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    out = (a.shape[1] - 1) // stride + 1
    total = sum(
        padded[:, i : i + stride * out : stride, j : j + stride * out : stride] * w[i, j]
        for i in range(kernel)
        for j in range(kernel)
    )
    return np.clip(total, 0, 6)


def softmax(*shape: int) -> tirx.PrimFunc:
    """Softmax over the last axis."""
    a = te.placeholder(shape, name="A")
    k, m = te.reduce_axis((0, shape[-1]), name="k"), te.reduce_axis((0, shape[-1]), name="m")
    top = te.compute(shape[:-1], lambda *i: te.max(a[(*i, k)], axis=k), name="maximum")
    power = te.compute(shape, lambda *i: tirx.exp(a[i] - top[i[:-1]]), name="exponential")
    total = te.compute(shape[:-1], lambda *i: te.sum(power[(*i, m)], axis=m), name="total")
    out = te.compute(shape, lambda *i: power[i] / total[i[:-1]], name="quotient")
    return _function(a, out)


def softmax_of_moved_rows(first: int, second: int, size: int) -> tirx.PrimFunc:
    """Softmax of [first, second, size] along the last axis, as [second, first, size]."""
    a = te.placeholder((first, second, size), name="A")
    k, m = te.reduce_axis((0, size), name="k"), te.reduce_axis((0, size), name="m")
    top = te.compute((first, second), lambda i, j: te.max(a[i, j, k], axis=k), name="maximum")
    power = te.compute(a.shape, lambda i, j, n: tirx.exp(a[i, j, n] - top[i, j]), name="exponential")
    total = te.compute((first, second), lambda i, j: te.sum(power[i, j, m], axis=m), name="total")
    out = te.compute(
        (second, first, size), lambda j, i, n: power[i, j, n] / total[i, j], name="moved_quotient"
    )
    return _function(a, out)


def lowered_softmax(*shape: int) -> tirx.PrimFunc:
    """Softmax along the last axis as a model is lowered to it."""
    model = lowered(lambda builder, x: relax.op.nn.softmax(x, -1), [np.zeros(shape, "float32")])
    return model.tasks[0].function


def lowered_layer_norm(*shape: int) -> tirx.PrimFunc:
    """Layer normalisation over the last axis as a model is lowered to it; scale and shift are arguments."""
    inputs = [np.zeros(size, "float32") for size in (shape, shape[-1:], shape[-1:])]
    model = lowered(lambda builder, *x: relax.op.nn.layer_norm(*x, axes=[-1]), inputs)
    return model.tasks[0].function


def lowered_mean(*shape: int) -> tirx.PrimFunc:
    """Mean over the last two axes as a model is lowered to it."""
    model = lowered(lambda builder, x: relax.op.mean(x, [-2, -1]), [np.zeros(shape, "float32")])
    return model.tasks[0].function


def layer_norm_numpy(x: np.ndarray, scale: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """What `lowered_layer_norm` computes."""
    distance = x - x.mean(-1, keepdims=True)
    return distance / np.sqrt((distance**2).mean(-1, keepdims=True) + 1e-5) * scale + shift


def softmax_numpy(a: np.ndarray) -> np.ndarray:
    """What `softmax` computes."""
    power = np.exp(a - a.max(-1, keepdims=True))
    return power / power.sum(-1, keepdims=True)


def dense_beside(rows: int, columns: int, depth: int) -> tirx.PrimFunc:
    """X [rows, depth] times W [columns / 16, depth, 16], behind `columns` columns of another tensor."""
    a, w = te.placeholder((rows, depth), name="A"), te.placeholder((columns // 16, depth, 16), name="W")
    b, k = te.placeholder((rows, columns), name="B"), te.reduce_axis((0, depth), name="k")
    c = te.compute(
        (rows, columns), lambda i, j: te.sum(a[i, k] * w[j // 16, k, j % 16], axis=k), name="matmul"
    )
    d = te.compute(
        (rows, 2 * columns),
        lambda i, j: tirx.if_then_else(j < columns, b[i, j], c[i, j - columns]),
        name="concat",
    )
    return _function(a, w, b, d)


def addition(*shape: int) -> tirx.PrimFunc:
    """Sum of two tensors, then ReLU."""
    a, b = te.placeholder(shape, name="A"), te.placeholder(shape, name="B")
    c = te.compute(shape, lambda *i: a[i] + b[i], name="add")
    d = te.compute(shape, lambda *i: tirx.max(c[i], ZERO), name="relu")
    return _function(a, b, d)


def doubled_integers(*shape: int) -> tirx.PrimFunc:
    """A tensor of 64-bit integers, doubled."""
    a = te.placeholder(shape, dtype="int64", name="A")
    return _function(a, te.compute(shape, lambda *i: a[i] + a[i], name="add"))


def transpose(shape: tuple[int, ...], order: tuple[int, ...]) -> tirx.PrimFunc:
    """Permutation of the axes."""
    a = te.placeholder(shape, name="A")
    out = tuple(shape[axis] for axis in order)
    b = te.compute(
        out, lambda *i: a[tuple(i[order.index(axis)] for axis in range(len(shape)))], name="transpose"
    )
    return _function(a, b)


def run(
    function: tirx.PrimFunc,
    arguments: list[np.ndarray],
    shape: tuple[int, ...],
    target: dict[str, object],
    dtype: str = "float32",
) -> np.ndarray:
    """The output of a compiled function.

    Where this processor has no AVX-512, a program for it is compiled for AVX2: LLVM takes its vectors apart,
    and the program computes the same.
    """
    if target.get("mcpu") == "x86-64-v4" and not HAS_AVX512:
        target = {**target, "mcpu": "x86-64-v3"}
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    # What a program computes is in question, and LLVM takes most of the time: it hardly optimises.
    compiled = tvm.compile(module, target=tvm.target.Target({**target, "opt-level": 0})).jit()
    output = tvm.runtime.tensor(np.full(shape, np.nan if dtype == "float32" else 77, dtype))
    compiled["main"](*[tvm.runtime.tensor(a) for a in arguments], output)
    return output.numpy()
