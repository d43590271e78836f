"""What is drawn covers what networks have, on every kind of board."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from host.errors import ScheduleError
from host.lowering.graph import Value
from host.schedules.families import installed_rules, space_for
from research.pretraining import boards, dataset, operators
from research.pretraining.boards import draw_board, training_boards
from research.pretraining.kinds import half_operators
from research.pretraining.operator_sampler import Draw
from targets import declared

KINDS = [kind for kind, _ in operators.KINDS]


@pytest.mark.parametrize("kind", KINDS, ids=[kind.__name__.strip("_") for kind in KINDS])
def test_every_kind_has_programs(kind: object) -> None:
    assert callable(kind)
    generator = random.Random(f"{kind}/3")
    board = next(board for board in training_boards() if board.hardware.lanes == 16)
    found = 0
    for _ in range(4):
        draw = Draw(generator)
        output = kind(draw)
        if not operators.within_bounds(draw.builder, output):
            continue
        graph = draw.builder.graph(draw.inputs, output)
        for task in dataset.lowered_tasks(graph, board):
            try:
                space_for(task, board.hardware, 1).sample(generator, attempts=20000)
            except ScheduleError:
                continue
            found += 1
    assert found


def test_shares_are_of_the_whole() -> None:
    assert sum(share for _, share in operators.KINDS) == pytest.approx(1.0)


def test_every_rule_that_leaves_something_open_is_drawn() -> None:
    every, wanted = training_boards(), {rule.name for rule in installed_rules() if rule.decisions}
    # Their function is one block that nobody reads, for which the language has no words: Gensor proposes.
    wanted -= {"cached_attention", "cuda_cached_attention"}
    # No kind draws queries, keys and values in halves yet: Gensor alone proposes here as well.
    wanted -= {"cuda_attention"}
    # How long the lists of a scatter are depends on its indices: no time of drawn ones would teach anything.
    wanted -= {"cuda_scatter", "scatter"}
    # No board of the training has registers of matrices.
    wanted -= {"quantised_tiles", "gated_tiles"}
    # There are no three convolutions in a row, and no GPU that gains from sums in halves.
    wanted -= {"chain", "cuda_mma_halves"}
    found: Counter[str] = Counter()
    for index in range(1000):
        try:
            space, _ = dataset.draw_space(5, index, every)
        except ScheduleError:
            continue
        found[space.rule.name] += 1
        if set(found) == wanted:
            break
    assert set(found) == wanted


def test_every_declared_board_is_drawn_with_other_figures_and_threads() -> None:
    every = training_boards()
    assert len({board.title for board in every}) >= len(declared()) - 3
    processors = [board for board in every if board.architecture == "x86_64" and board.hardware.gpu is None]
    assert {board.hardware.dot_product for board in processors} == {"s16s16", "u8s8"}
    assert any(board.hardware.bfloat16 is not None for board in every)
    assert any(board.hardware.gpu is not None for board in every)
    generator = random.Random(0)
    drawn = [draw_board(every, generator) for _ in range(400)]
    assert {board.title for board, _ in drawn} == {board.title for board in every}
    assert len({board.hardware.peak_flops for board, _ in drawn}) > 200
    threads = {count for board, count in drawn if board.hardware.gpu is None}
    assert {1, 2, 3, 4, 8} <= threads
    assert all(1 <= count <= board.hardware.cores for board, count in drawn)
    assert {count for board, count in drawn if board.hardware.gpu is not None} == {1}
    assert boards.training_boards() == every


@pytest.mark.parametrize("operator", [half_operators.bfloat16_dense, half_operators.bfloat16_convolution])
def test_products_of_bfloat16_are_drawn_for_processors_that_have_them(
    operator: Callable[[Draw], Value],
) -> None:
    [board] = [board for board in training_boards() if board.hardware.bfloat16 is not None]
    for seed in range(6):
        draw = Draw(random.Random(seed))
        graph = draw.builder.graph(draw.inputs, operator(draw))
        spaces = [space_for(task, board.hardware) for task in dataset.lowered_tasks(graph, board)]
        [space] = [space for space in spaces if space.rule.name == "dot"]
        types = {access.type.name for access in space.workload.anchor_stage.reads}
        assert types == {"bfloat16"}
        assert space.legal(space.sample(random.Random(seed)))
