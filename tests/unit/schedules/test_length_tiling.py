"""How register-blocked programs take a length apart."""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx

from host.schedules import space_for
from host.schedules.analysis import analyse
from host.schedules.cpu.tiled.lengths import TiledLengths
from host.schedules.cpu.tiled.roles import PAD_COPY
from host.schedules.length_tiling import LengthTile
from tests.unit.schedules import functions as fn

HARDWARE = fn.board("avx2").hardware


def _between(make: Callable[[int], tirx.PrimFunc]) -> TiledLengths:
    return TiledLengths.between(analyse(make(48)), analyse(make(96)), HARDWARE)


def test_tiles_are_counted_along_every_axis_that_grows() -> None:
    tile = LengthTile((6, 16, 1), 48)
    assert tile.shortest_length == 16
    assert tile.step == 48
    assert [tile.count(n) for n in (1, 6, 7, 17)] == [1, 6, 2 * 7, 3 * 2 * 17]


def test_rows_that_grow_are_the_tile_and_leave_the_columns_open() -> None:
    tiling = _between(lambda n: fn.dense(n, 32, 24, 8))
    assert tiling == TiledLengths(rows=True, vector=False, outer=False, reduction=False, padded=False)
    designs = list(tiling.designs(HARDWARE))
    assert all(set(design.decisions) == {"rows"} for design in designs)
    assert all(design.length % design.decisions["rows"] == 0 for design in designs)
    assert {design.hardware for design in designs} == {HARDWARE}
    values = {"rows": 4, "block": 6, "vectors": 2}
    assert tiling.tile(values, HARDWARE) == LengthTile((4,), 24)
    assert tiling.untiled() == {"rows": 1, "block": 1}
    # Five tiles are one block of five; nine are blocks of three.
    assert [tiling.decisions_at(values, n)["block"] for n in (4, 20, 24, 36)] == [1, 5, 6, 3]


def test_vectors_along_the_length_may_be_shorter_than_the_processors() -> None:
    tiling = _between(lambda n: fn.batched(2, n, n, 8))
    assert tiling == TiledLengths(rows=True, vector=True, outer=False, reduction=False, padded=False)
    designs = list(tiling.designs(HARDWARE))
    assert {design.hardware.lanes for design in designs} == {8, 4}
    assert all(design.decisions["panel"] == 1 for design in designs)
    values = {"rows": 4, "block": 3, "vectors": 2}
    assert tiling.tile(values, HARDWARE) == LengthTile((4, 16), 48)


def test_a_sum_along_the_length_is_not_unrolled() -> None:
    tiling = _between(lambda n: fn.batched(2, n, 16, n))
    assert tiling.reduction
    for design in tiling.designs(HARDWARE):
        assert (design.decisions["unroll"], design.decisions["window"]) == (1, 0)
    assert tiling.tile({"rows": 4, "block": 3}, HARDWARE).count(12) == 12 * 3


def test_a_padded_input_is_copied() -> None:
    tiling = _between(lambda n: fn.convolution(n, 5, 32, 3, 1))
    assert {design.decisions["pad"] for design in tiling.designs(HARDWARE)} == {PAD_COPY}


def test_a_space_with_a_fixed_decision_keeps_the_others_open() -> None:
    space = space_for(fn.task(fn.dense(16, 32, 24)), HARDWARE)
    fixed = space.fixed({"rows": 4})
    assert fixed is not None
    assert {d.name: d.choices for d in fixed.decisions} == {
        **{d.name: d.choices for d in space.decisions},
        "rows": (4,),
    }
    assert space.fixed({"rows": 5}) is None
