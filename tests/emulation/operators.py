"""Small operators of every kind, as they come out of lowering for a board."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from host.lowering import lower
from host.model import Task
from targets import Board
from tests.unit.lowering.harness import imported, normal, relax_module, weight

nn = relax.op.nn
Build = Callable[..., Any]


def _norm(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    return builder.emit(nn.layer_norm(x, weight(24), weight(24, seed=2), axes=[-1]))


def _bias(builder: relax.BlockBuilder, value: relax.Expr, *shape: int) -> relax.Expr:
    return builder.emit(relax.op.add(builder.emit(value), weight(*shape, seed=3)))


def _convolution(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    value = _bias(b, nn.conv2d(x, weight(20, 6, 3, 3), strides=(2, 2), padding=(1, 1, 1, 1)), 1, 20, 1, 1)
    return b.emit(nn.relu(value))


def _depthwise(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    value = _bias(b, nn.conv2d(x, weight(24, 1, 3, 3), padding=(1, 1, 1, 1), groups=24), 1, 24, 1, 1)
    return b.emit(relax.op.clip(value, 0, 6))


OPERATORS: dict[str, tuple[Build, tuple[np.ndarray, ...]]] = {
    "convolution": (_convolution, (normal(1, 6, 13, 13),)),
    "depthwise": (_depthwise, (normal(1, 24, 9, 9),)),
    "grouped": (
        lambda b, x: b.emit(nn.conv2d(x, weight(32, 4, 3, 3), padding=(1, 1, 1, 1), groups=4)),
        (normal(1, 16, 8, 8),),
    ),
    "dilated": (
        lambda b, x: b.emit(nn.conv2d(x, weight(12, 8, 3, 3), padding=(2, 2, 2, 2), dilation=(2, 2))),
        (normal(1, 8, 9, 9),),
    ),
    "transposed": (
        lambda b, x: b.emit(
            nn.conv2d_transpose(x, weight(8, 12, 4, 4), strides=(2, 2), padding=(1, 1, 1, 1))
        ),
        (normal(1, 8, 6, 6),),
    ),
    "dense": (
        lambda b, x: b.emit(nn.gelu(_bias(b, relax.op.matmul(x, weight(40, 36)), 36))),
        (normal(7, 40),),
    ),
    "gemv": (lambda b, x: b.emit(relax.op.matmul(x, weight(64, 30))), (normal(1, 64),)),
    "batched matmul": (
        lambda b, x, y: b.emit(relax.op.matmul(x, y)),
        (normal(3, 10, 16), normal(3, 16, 20)),
    ),
    "max pooling": (lambda b, x: b.emit(nn.max_pool2d(x, (3, 3), (2, 2), (1, 1))), (normal(1, 20, 11, 11),)),
    "average pooling": (lambda b, x: b.emit(nn.avg_pool2d(x, (2, 2), (2, 2))), (normal(1, 20, 8, 8),)),
    "softmax": (lambda b, x: b.emit(nn.softmax(x)), (normal(6, 40),)),
    "short softmax": (lambda b, x: b.emit(nn.softmax(x)), (normal(6, 7),)),
    "layer norm": (_norm, (normal(5, 24),)),
    "mean": (lambda b, x: b.emit(relax.op.mean(x, axis=[2, 3])), (normal(1, 20, 5, 5),)),
    "activations": (
        lambda b, x: b.emit(
            relax.op.multiply(b.emit(relax.op.sigmoid(x)), b.emit(relax.op.tanh(b.emit(relax.op.exp(x)))))
        ),
        (normal(5, 37),),
    ),
    "transpose": (lambda b, x: b.emit(relax.op.permute_dims(x, [0, 2, 1])), (normal(2, 12, 17),)),
    "concatenation": (lambda b, x, y: b.emit(relax.op.concat([x, y], 1)), (normal(2, 5, 8), normal(2, 3, 8))),
    "embedding": (
        lambda b, x: b.emit(relax.op.take(weight(11, 16), x, axis=0)),
        (np.array([[3, 0, 10], [7, 7, 1]], "int64"),),
    ),
    "resize": (
        lambda b, x: b.emit(relax.op.image.resize2d(x, (10, 10), method="linear")),
        (normal(1, 8, 5, 5),),
    ),
}


def tasks_of(board: Board) -> list[tuple[str, Task]]:
    """Every distinct task of all operators lowered for a board, with the name of its operator."""
    found: dict[str, tuple[str, Task]] = {}
    for name, (build, inputs) in OPERATORS.items():
        for task in lower(imported(relax_module(build, inputs)), board).tasks:
            found.setdefault(task.workload_hash, (name, task))
    return list(found.values())
