"""The estimate of Winograd convolutions, and the choice between them and direct ones."""

from __future__ import annotations

import dataclasses
import functools

import pytest

from host.gensor import Gensor
from host.lowering.passes.pack_weights import lanes_for
from host.lowering.winograd import Shape, direct_seconds, winograd_seconds
from host.lowering.winograd.choice import best_tile
from host.model import DeviceProfile
from targets import Board, board_for, declared
from tests.unit.schedules import functions as fn
from tests.unit.schedules.cpu.winograd_cases import Image, space_of

BOARDS = ("avx512", "avx2", "raspberry_pi_3", "raspberry_pi_5", "rv64gc", "spacemit_k1")
IMAGES: tuple[tuple[Image, int], ...] = (
    ((1, 28, 28, 128), 128),
    ((1, 7, 7, 512), 512),
    ((8, 14, 14, 64), 64),
    ((1, 32, 32, 3), 64),
    ((1, 3, 3, 64), 64),
)
UNIT = {"vectors": 1, "rows": 1, "tiles": 1, "unroll": 1, "pad": 0, "depth": 128, "span": 1}


@functools.cache
def board_of(name: str) -> Board:
    if name in ("avx512", "avx2"):
        return fn.board("" if name == "avx512" else "avx2")
    found = board_for(declared()[name])
    assert found is not None
    return found


def _shape(image: Image, channels: int, board: Board) -> Shape:
    batch, height, width, depth = image
    lanes = lanes_for(channels, board.hardware.lanes, board.hardware.halves_vectors)
    return Shape(batch, height, width, depth, channels, lanes)


def _constructed(board: Board, image: Image, channels: int, outputs: int | None) -> float:
    space = space_of(board, image, channels, outputs)
    profile = DeviceProfile("test", board, board.hardware, 1)
    (candidate,) = Gensor().propose(space, profile, (), 1, seed=0)
    return candidate.estimate_s


@pytest.mark.parametrize("name", BOARDS)
def test_it_is_chosen_only_where_its_program_is_estimated_faster(name: str) -> None:
    board, chosen = board_of(name), 0
    for image, channels in IMAGES:
        tile = best_tile(_shape(image, channels, board), board.hardware)
        if tile is not None:
            direct = _constructed(board, image, channels, None)
            assert _constructed(board, image, channels, tile) < direct, (name, image, tile)
            chosen += 1
    assert chosen >= 2, "it pays for the first two images on every board"


def test_small_images_keep_small_tiles_or_none() -> None:
    """3x3 results fill 9 of 16 places of a 4x4 tile, with 36 products instead of 81."""
    board = board_of("avx512")
    assert best_tile(_shape((1, 56, 56, 64), 64, board), board.hardware) == 4
    assert best_tile(_shape((1, 1, 1, 64), 64, board), board.hardware) is None


def test_the_choice_keeps_a_margin() -> None:
    board = board_of("avx512")
    for size in (3, 5, 8, 14, 30):
        for depth in (3, 16, 96):
            shape = _shape((1, size, size, depth), 32, board)
            tile = best_tile(shape, board.hardware)
            if tile is not None:
                found = winograd_seconds(shape, tile, board.hardware)
                assert direct_seconds(shape, board.hardware) > 1.1 * found


@pytest.mark.parametrize("field", ["batch", "height", "channels_in", "channels_out"])
def test_more_work_takes_longer(field: str) -> None:
    hardware = board_of("avx512").hardware
    shape = Shape(1, 16, 16, 64, 64, 16)
    larger = dataclasses.replace(shape, **{field: 2 * getattr(shape, field)})
    for outputs in (2, 4):
        small, large = (winograd_seconds(one, outputs, hardware) for one in (shape, larger))
        assert 1.3 * small < large < 2.5 * small
    assert direct_seconds(larger, hardware) > 1.9 * direct_seconds(shape, hardware)


def test_register_tiles_are_worth_their_registers() -> None:
    space = space_of(board_of("avx512"), (1, 28, 28, 128), 128, 4)
    alone = space.estimate_s(UNIT)
    tiled = space.estimate_s({**UNIT, "rows": 7})
    both = space.estimate_s({**UNIT, "rows": 7, "vectors": 2, "tiles": 7})
    assert alone > 2 * tiled > 2 * both
    # 36 products of every 16 of a tile against 9 of every result: at best 4 times as fast as direct.
    least = 2 * 28 * 28 * 128 * 128 * 36 / 16 / space.hardware.peak_flops
    assert least < both


def test_weights_are_not_transformed_again_without_need() -> None:
    """With the input transformed in advance once for all rows of tiles, strip by strip for each anew."""
    space = space_of(board_of("avx512"), (1, 28, 28, 128), 128, 4)
    values = {**UNIT, "rows": 7, "vectors": 2}
    once, anew = (space.estimate_s({**values, "span": span}) for span in (7, 1))
    assert anew > 1.2 * once


@pytest.mark.parametrize("threads", [2, 4])
def test_threads_share_the_work(threads: int) -> None:
    board = board_of("avx512")
    alone = space_of(board, (1, 28, 28, 128), 128, 4)
    shared = space_of(board, (1, 28, 28, 128), 128, 4, threads)
    values = {**UNIT, "rows": 7, "vectors": 1, "tiles": 7}
    one, many = alone.estimate_s(values), shared.estimate_s(values)
    assert one / threads < many < 1.3 * one / threads + 2 * board.hardware.parallel_launch_s
