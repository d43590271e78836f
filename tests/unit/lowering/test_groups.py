"""Grouped convolutions have programs on every board, whatever the size of their groups."""

from __future__ import annotations

import random

import pytest

from host.schedules import space_for
from research.pretraining.dataset import lowered_tasks
from research.pretraining.operator_sampler import Draw
from targets import Board, board_for, declared


def _board(name: str) -> Board:
    board = board_for(declared()[name])
    assert board is not None
    return board.on_gpu() if board.gpu is not None else board


@pytest.mark.parametrize("inside", [2, 5, 10, 12, 24, 58])
@pytest.mark.parametrize("name", ["jetson_orin_nano", "x86_64-v4", "raspberry_pi_4"])
def test_groups_of_any_size_have_programs(name: str, inside: int) -> None:
    draw, board = Draw(random.Random(0)), _board(name)
    result = draw.builder.one(
        "conv",
        [draw.input(1, 14, 14, 4 * inside), draw.weight(3, 3, inside, 4 * inside)],
        (1, 14, 14, 4 * inside),
        "float32",
        strides=(1, 1),
        padding=(1, 1, 1, 1),
        dilation=(1, 1),
        groups=4,
    )
    graph = draw.builder.graph(draw.inputs, draw.builder.unary("relu", result))
    (task,) = lowered_tasks(graph, board)
    space = space_for(task, board.hardware, 1)
    assert space.rule.name == ("cuda_tiled" if board.hardware.gpu is not None else "tiled")
    for seed in range(3):
        space.apply(space.candidate(space.sample(random.Random(seed)), "random"))
