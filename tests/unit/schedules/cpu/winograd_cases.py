"""3x3 convolutions as lowering writes them for Winograd's algorithm, and directly."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from host.lowering.emit import emit
from host.lowering.fusion import fuse
from host.lowering.lower import optimise
from host.lowering.ops import known_operators
from host.lowering.passes.use_winograd import use_winograd
from host.lowering.reader.relax_reader import read
from host.lowering.tasks import make_tasks
from host.model import Task
from host.schedules import DesignSpace, space_for
from targets import Board
from tests.unit.lowering.harness import normal, relax_module, weight

Image = tuple[int, int, int, int]


def convolution(
    board: Board, image: Image, channels: int, padding: tuple[int, ...], outputs: int | None
) -> tuple[Task, tuple[np.ndarray, ...]]:
    """The task of a convolution with bias and ReLU, and its weights.

    Args:
        board: what it is lowered for.
        image: shape of the input, channels last.
        channels: of the result.
        padding: top, left, bottom, right.
        outputs: results along each side of a tile; None for the direct convolution.
    """
    layout = {"data_layout": "NHWC", "out_layout": "NHWC"}

    def build(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Var:
        taps = weight(channels, image[-1], 3, 3)
        value = builder.emit(relax.op.nn.conv2d(x, taps, padding=padding, **layout))
        biased = builder.emit(relax.op.add(value, weight(channels, seed=3)))
        return builder.emit(relax.op.nn.relu(biased))

    graph = read(relax_module(build, [normal(*image)]), known_operators())
    graph = optimise(graph, board.hardware, approximate=False)
    if outputs is not None:
        graph = use_winograd(graph, board.hardware, outputs)
    module, parameters, _ = emit(graph, fuse(graph), tvm.target.Target(board.tvm_target))
    (task,) = make_tasks(module)
    return task, parameters


def space_of(board: Board, image: Image, channels: int, outputs: int | None, threads: int = 1) -> DesignSpace:
    """The design space of such a convolution with a padding of 1."""
    task, _ = convolution(board, image, channels, (1, 1, 1, 1), outputs)
    return space_for(task, board.hardware, threads)
