"""The estimate, on cases that can be worked out by hand."""

from __future__ import annotations

import dataclasses

import pytest

from host.lowering.types import numeric_type
from host.schedules import DesignSpace, space_for
from host.schedules.cpu.traffic import Loop, footprint_bytes, footprints, traffic_bytes
from host.schedules.workload import Access, Move
from tests.unit.schedules import functions as fn

HARDWARE = fn.board().hardware
UNIT = {"panel": 1, "block": 1, "block2": 1, "unroll": 1, "window": 0, "pad": 0, "rows2": 1}


def _space(function, threads: int = 1) -> DesignSpace:
    return space_for(fn.task(function), HARDWARE, threads)


def _access(shape: tuple[int, ...], *steps: tuple[int, ...]) -> Access:
    """A linear index: per axis of the stage, the steps along the dimensions of the buffer."""
    moves = tuple((Move(1, 1 << 20, step),) for step in steps)
    return Access("A", numeric_type("float32"), shape, moves, True)


def test_footprint_counts_lines() -> None:
    matrix = _access((100, 100), (1, 0), (0, 1))
    assert footprint_bytes(matrix, {0: 1, 1: 1}) == 64
    assert footprint_bytes(matrix, {0: 1, 1: 32}) == 128
    assert footprint_bytes(matrix, {0: 10, 1: 32}) == 10 * 128
    # One column: a line for every row.
    assert footprint_bytes(matrix, {0: 10}) == 640
    # Never more than the buffer.
    assert footprint_bytes(matrix, {0: 100, 1: 100}) == 40000


def test_footprint_unites_windows() -> None:
    """A 3-wide window over 8 positions of 64 channels touches 10 positions, not 24."""
    image = _access((56, 64), (1, 0), (1, 0), (0, 1))
    assert footprint_bytes(image, {0: 8, 1: 3, 2: 64}) == 10 * 64 * 4


def test_footprint_of_packed_weights() -> None:
    columns = (Move(1, 16, (0, 0, 1)), Move(16, 4, (1, 0, 0)))
    packed = Access("W", numeric_type("float32"), (4, 8, 16), (columns, (Move(1, 8, (0, 1, 0)),)), True)
    assert packed.strides == (1, 16)
    assert packed.groups == ((16, 128), (0, 0))
    assert footprint_bytes(packed, {0: 16, 1: 8}) == 8 * 64
    assert footprint_bytes(packed, {0: 32, 1: 8}) == 2 * 8 * 64


def test_traffic_follows_what_fits() -> None:
    """Rows of A against all of B: with room for B it is read once, without it once per row of A."""
    a, b = _access((64, 64), (1, 0), (0, 0), (0, 1)), _access((64, 64), (0, 0), (1, 0), (0, 1))
    nest = (Loop(0, 64), Loop(1, 64), Loop(2, 64))
    size = 64 * 64 * 4
    sizes = footprints((a, b), nest)
    assert traffic_bytes((a, b), nest, sizes, float("inf")) == 2 * size
    assert traffic_bytes((a, b), nest, sizes, 1024) == size + 64 * size


def test_larger_register_tiles_are_faster_until_registers_run_out() -> None:
    space = _space(fn.dense(128, 768, 768))
    small = space.estimate_s({**UNIT, "vectors": 1, "rows": 1})
    medium = space.estimate_s({**UNIT, "vectors": 2, "rows": 4})
    good = space.estimate_s({**UNIT, "vectors": 2, "rows": 8})
    assert small > 2 * medium > 1.9 * good
    limit = 2 * 128 * 768 * 768 / HARDWARE.peak_flops
    assert limit < good < 1.3 * limit
    assert not space.legal({**UNIT, "vectors": 4, "rows": 16})


def test_a_tile_that_keeps_all_load_ports_busy_is_slower() -> None:
    """16 x 1 and 8 x 2 vectors are 8 cycles of two units each, with 8.5 and 5 cycles of loads."""
    two_units = dataclasses.replace(HARDWARE, fma_per_cycle=2.0, peak_flops=2.0 * HARDWARE.peak_flops)
    first, *others = two_units.levels
    wide = dataclasses.replace(first, bandwidth_bytes_per_s=2.0 * first.bandwidth_bytes_per_s)
    hardware = dataclasses.replace(two_units, levels=(wide, *others))
    space = space_for(fn.task(fn.dense(64, 32, 240)), hardware, 1)
    tall, square = ({**UNIT, "vectors": 16 // rows, "rows": rows, "fetch": 0} for rows in (16, 8))
    compute = [space.estimate_parts_s(values)["compute"] for values in (tall, square)]
    assert compute[0] > 1.1 * compute[1]


def test_fetched_weights_come_during_all_of_the_panel_before() -> None:
    """64 rows in tiles of eight: without the fetch, weights come during the first of eight tiles only."""
    space = _space(fn.dense(64, 512, 4096))
    values = {**UNIT, "vectors": 2, "rows": 8, "block": 8}
    fetched, waiting = (space.estimate_parts_s({**values, "fetch": fetch})["compute"] for fetch in (1, 0))
    assert waiting > 1.05 * fetched
    # The first block of panels has none before it: the more panels it has, the longer it waits.
    wide = space.estimate_parts_s({**values, "fetch": 1, "panel": 4})["compute"]
    assert wide > fetched


def test_a_tile_with_a_remainder_of_a_vector_is_slower() -> None:
    """49 columns are three vectors and one lane, for which the code of its tile is repeated."""
    space = _space(fn.batched(4, 49, 49, 64))
    whole = space.estimate_s({**UNIT, "vectors": 4, "rows": 7})
    half = space.estimate_s({**UNIT, "vectors": 2, "rows": 7})
    assert whole > 1.5 * half


def test_rows_in_one_cache_set_are_slower() -> None:
    """16 rows at a step of 4,096 bytes share one set of eight ways; at a step of 4,160 they don't."""
    conflict = _space(fn.dense(128, 256, 1024))
    free = _space(fn.dense(128, 256, 1040))
    values = {**UNIT, "vectors": 1, "rows": 16}
    assert conflict.estimate_s(values) > 1.5 * free.estimate_s(values)


def test_cost_does_not_grow_with_the_tensor() -> None:
    """The estimate is a formula: a tensor 64 times as large takes no more evaluations."""
    small, large = _space(fn.dense(16, 64, 64)), _space(fn.dense(1024, 1024, 1024))
    assert large.estimate_s({**UNIT, "vectors": 2, "rows": 8}) > small.estimate_s(
        {**UNIT, "vectors": 2, "rows": 8}
    )


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_threads_share_what_divides(threads: int) -> None:
    space = _space(fn.dense(128, 768, 768), threads)
    values = {**UNIT, "vectors": 2, "rows": 8}
    alone = _space(fn.dense(128, 768, 768)).estimate_s(values)
    shared = space.estimate_s(values)
    if threads == 1:
        assert shared == alone
    else:
        assert alone / threads <= shared <= alone / threads * 1.1 + HARDWARE.parallel_launch_s


def test_latency_limits_a_single_accumulator() -> None:
    slow = dataclasses.replace(HARDWARE, fma_latency_cycles=8.0)
    values = {**UNIT, "vectors": 1, "rows": 1}
    function = fn.dense(16, 64, 1024)
    quick = _space(function).estimate_s(values)
    assert space_for(fn.task(function), slow, 1).estimate_s(values) > 1.5 * quick


def test_rows_that_are_far_apart_are_read_in_long_runs() -> None:
    """The scores of one token: a product with a matrix that is no packed weight, row by row."""
    far, near = _space(fn.batched(8, 1, 512, 64)), _space(fn.batched(8, 1, 128, 64))
    short, wide = ({**UNIT, "rows": 1, "vectors": vectors} for vectors in (1, 8))
    assert far.estimate_s(short) > 1.5 * far.estimate_s(wide)
    assert near.estimate_s(short) < 1.5 * near.estimate_s(wide)


def test_panels_outside_of_the_rows_read_memory_in_runs_and_long_runs_are_faster() -> None:
    """With peeled borders panels are the outermost loop: each reads its channels of every pixel."""
    space = _space(fn.depthwise(224, 64, 1))
    values = {
        "vectors": 1,
        "rows": 4,
        "rows2": 1,
        "block": 1,
        "block2": 1,
        "unroll": 1,
        "window": 0,
        "pad": 1,
    }
    parts = space.estimate_s({**values, "panel": 1})
    assert parts > 1.2 * space.estimate_s({**values, "panel": 4})
    # A copied input is walked through row by row, whatever the panels are.
    copied = {**values, "pad": 0}
    assert space.estimate_s({**copied, "panel": 1}) == pytest.approx(
        space.estimate_s({**copied, "panel": 4}), rel=0.1
    )
