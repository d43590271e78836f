"""Design spaces of drawn tasks, for every target."""

from __future__ import annotations

import random
from collections.abc import Iterator

from host.errors import LoweringError, ScheduleError
from host.schedules import DesignSpace, space_for
from research.pretraining.boards import board_of
from research.pretraining.dataset import lowered_tasks
from research.pretraining.operators import draw_operator
from targets import Board

TARGETS = {
    "x86": ("x86_64-v2", "x86_64-v3", "x86_64-v4"),
    "aarch64": ("raspberry_pi_4", "jetson_orin_nano"),
    "riscv64": ("rv64gc", "spacemit_k1"),
    "cuda": ("jetson_orin_nano", "jetson_nano"),
}


def boards_of(target: str) -> list[Board]:
    """Boards of a target that can be made programs for."""
    boards = [board_of(name) for name in TARGETS[target]]
    return [board.on_gpu() for board in boards if board.gpu is not None] if target == "cuda" else boards


def spaces(target: str, seed: int) -> Iterator[DesignSpace]:
    """Spaces of drawn tasks without end; the same arguments give the same."""
    boards = boards_of(target)
    generator = random.Random(f"{target}/{seed}")
    while True:
        board = generator.choice(boards)
        threads = 1 if board.hardware.gpu is not None else generator.choice((1, 2, 4))
        try:
            tasks = lowered_tasks(draw_operator(generator), board)
        except LoweringError:
            continue  # what a GPU does not have
        for task in tasks:
            try:
                space = space_for(task, board.hardware, threads)
                space.apply(space.candidate(space.sample(generator, attempts=20000), "random"))
            except ScheduleError:
                continue  # no rule has programs for it
            yield space
