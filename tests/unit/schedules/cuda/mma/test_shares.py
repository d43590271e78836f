"""Stream-K: tiles of a product that fill no wave of blocks are dealt out to all multiprocessors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import tirx

from benchmarks.gpu.launches import launches_of
from host.gensor.walk import WalkOptions, construct
from host.schedules import DesignSpace, scheduled_function, space_for
from host.schedules.cuda.mma.product import product_of
from host.schedules.cuda.mma.shares import SEGMENTS, Shares, shares_of, tiles_of
from host.schedules.cuda.mma.tiles import tiling_of
from targets import GpuModel
from targets.nvidia import AGX_ORIN, ORIN_NANO
from tests.cuda_emulator.run import emulate
from tests.unit.schedules import functions as fn
from tests.unit.schedules.cpu.dot_cases import arguments, dense_task, expected
from tests.unit.schedules.cuda import mma_cases as mma
from tests.unit.schedules.cuda.cuda_cases import Case, gpu_board, gpu_target

VALUES = {
    "rows": 16, "cols": 32, "row_warps": 1, "column_warps": 1, "slices": 1, "depth": 16, "stages": 3,
    "splits": 0,
}  # fmt: skip


def _gpu(multiprocessors: int) -> GpuModel:
    """A GPU with one block on each multiprocessor."""
    return replace(ORIN_NANO, multiprocessors=multiprocessors, blocks_per_multiprocessor=1)


def _space(case: Case, gpu: GpuModel) -> DesignSpace:
    return space_for(fn.task(case.function), gpu_board(gpu).hardware)


def _program(space: DesignSpace, values: dict[str, int]) -> tirx.PrimFunc:
    return scheduled_function(space.apply(space.candidate(values, "test")))


def _shares(space: DesignSpace, values: dict[str, int], gpu: GpuModel) -> Shares:
    product = product_of(space.workload)
    assert product is not None
    tiling = tiling_of(product, values)
    found = shares_of(tiling, tiles_of(product, tiling), -(-product.steps // tiling.depth), 1, gpu)
    assert found is not None
    return found


def _right(case: Case, space: DesignSpace, values: dict[str, int], folder: Path) -> None:
    """Checks the output of a program."""
    output = np.full(case.output.shape, np.nan, case.output.dtype)
    done = emulate(_program(space, values), [*case.inputs, output], gpu_target(), folder)
    np.testing.assert_allclose(output, case.output, rtol=1e-3, atol=1e-3)
    assert not any(resources.spills for resources in done.kernel.resources)
    assert done.counters.load_conflicts == done.counters.copy_conflicts == 0


# Tiles are 16 x 32: rows, columns, multiprocessors, tiles in full waves, tiles that are dealt.
@pytest.mark.parametrize(
    ("rows", "columns", "multiprocessors", "whole", "dealt"),
    [(16, 96, 2, 2, 1), (23, 96, 16, 0, 6), (37, 160, 4, 12, 3)],
)
def test_tiles_that_fill_no_wave_are_shared(
    rows: int, columns: int, multiprocessors: int, whole: int, dealt: int, tmp_path: Path
) -> None:
    case, gpu = mma.dense_case(rows, columns, 330), _gpu(multiprocessors)
    space = _space(case, gpu)
    assert space.legal(VALUES)
    shares = _shares(space, VALUES, gpu)
    assert (shares.whole, shares.dealt) == (whole, dealt)
    first, joining = launches_of(_program(space, VALUES))
    assert first.count == shares.blocks <= whole + multiprocessors
    assert joining.count * joining.threads[0] * joining.threads[1] == dealt * 16 * 32 // 4
    _right(case, space, VALUES, tmp_path)


def test_several_slices_and_large_tiles_are_shared(tmp_path: Path) -> None:
    case, gpu = mma.dense_case(96, 64, 330), _gpu(2)
    values = {**VALUES, "rows": 32, "column_warps": 2, "slices": 2, "stages": 2}
    space = _space(case, gpu)
    assert space.legal(values)
    assert _shares(space, values, gpu).whole == 2
    _right(case, space, values, tmp_path)


def test_sums_of_bytes_are_exact(tmp_path: Path) -> None:
    task, gpu = dense_task(37, 96, 656, 32, "int8", 16), _gpu(4)
    space = space_for(task, gpu_board(gpu).hardware)
    values = {**VALUES, "depth": 32}
    assert space.legal(values)
    given = arguments(task, seed=1)
    emulate(_program(space, values), given, gpu_target(), tmp_path)
    np.testing.assert_array_equal(given[-1], expected(task, given))


def test_the_emulation_sees_a_missing_barrier_between_tiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies of the next tile lie where a slower warp still reads the sums of this one."""
    case, gpu = mma.dense_case(96, 64, 330), _gpu(4)
    values = {**VALUES, "rows": 32, "column_warps": 2}
    space = _space(case, gpu)
    shares = _shares(space, values, gpu)
    assert shares.each * shares.count > shares.steps, "a share has parts of two tiles"
    monkeypatch.setattr("host.schedules.cuda.mma.instructions.block_barrier", lambda: tirx.Evaluate(0))
    output = np.full(case.output.shape, np.nan, case.output.dtype)
    emulate(_program(space, values), [*case.inputs, output], gpu_target(), tmp_path)
    assert not np.allclose(output, case.output, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("tiles", "steps", "least"), [(7, 21, 1), (5, 6, 4), (19, 9, 2), (3, 40, 1)])
def test_every_step_belongs_to_one_share(tiles: int, steps: int, least: int) -> None:
    gpu = _gpu(4)
    product = product_of(_space(mma.dense_case(16, 32, 64), gpu).workload)
    assert product is not None
    shares = shares_of(tiling_of(product, VALUES), tiles, steps, least, gpu)
    assert shares is not None and shares.count <= gpu.multiprocessors
    seen: dict[tuple[int, int], int] = {}
    parts: dict[int, list[int]] = {}
    for block in range(shares.blocks):
        begin, segments = (int(one) for one in _evaluated(shares.segments(block)))
        assert 1 <= segments <= (SEGMENTS if block >= shares.whole else 1)
        for number in range(segments):
            segment = [int(one) for one in _evaluated(shares.segment(block, begin, number))]
            tile, first, count, part = segment
            assert count > 0
            for step in range(first, first + count):
                assert seen.setdefault((tile, step), block) == block
            if block >= shares.whole:
                parts.setdefault(tile - shares.whole, []).append(part)
    assert len(seen) == tiles * steps
    for dealt, stored in parts.items():
        first, last = shares.of_tile(dealt)
        assert [shares.part(dealt, share) for share in range(first, last + 1)] == stored


def _evaluated(expressions: tuple[object, ...]) -> list[object]:
    simplify = tvm.sym.Analyzer().simplify
    return [one if isinstance(one, int) else simplify(one) for one in expressions]


def test_full_waves_and_little_depth_are_not_shared() -> None:
    gpu = _gpu(2)
    assert not _space(mma.dense_case(32, 64, 330), gpu).legal(VALUES), "four tiles fill two waves"
    shallow = _space(mma.dense_case(16, 96, 64), gpu)
    assert 0 not in next(one.choices for one in shallow.decisions if one.name == "splits")


def test_constructions_share_tiles_where_the_estimate_gains() -> None:
    """Of BERT's second dense layer, the last wave is short for every tile that has enough work."""
    for gpu in (ORIN_NANO, AGX_ORIN):
        space = space_for(fn.task(mma.dense(128, 768, 3072)), gpu_board(gpu).hardware)
        (values, seconds), *_ = construct(space, space.estimate_s, WalkOptions(), 1, 0)
        others = [
            space.estimate_s(other)
            for splits in (1, 2, 3, 4, 6, 8)
            if space.legal(other := {**values, "splits": splits})
        ]
        assert values["splits"] == 0 and seconds < min(others)
