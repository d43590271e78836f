"""Blocks that copy what they read of a padded input: depthwise convolutions and pooling."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import tirx

from host.build.kernel import lower_function
from host.gensor import Gensor
from host.model import DeviceProfile
from host.schedules import DesignSpace, scheduled_function, space_for
from host.schedules.cpu.tiled.roles import PAD_BLOCK, PAD_COPY, PAD_PEEL
from tests.unit.schedules import functions as fn

UNIT = {"panel": 1, "block": 1, "block2": 1, "unroll": 1, "window": 0, "rows2": 1, "vectors": 1, "fetch": 0}


def _space(size: int, channels: int, stride: int, kernel: int, threads: int = 1) -> DesignSpace:
    function = fn.depthwise(size, channels, stride, kernel)
    return space_for(fn.task(function, "depthwise"), fn.board(cores=threads).hardware, threads)


def _choices(space: DesignSpace) -> tuple[int, ...]:
    return next(decision.choices for decision in space.decisions if decision.name == "pad")


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("size", "stride", "kernel"), [(7, 1, 5), (12, 2, 5), (8, 1, 7)])
def test_every_block_copies_what_it_reads(size: int, stride: int, kernel: int, threads: int) -> None:
    space = _space(size, 64, stride, kernel, threads)
    out = (size - 1) // stride + 1
    rows = next(n for n in (2, 3, 7) if out % n == 0)
    values = UNIT | {"rows": rows, "panel": 2, "pad": PAD_BLOCK}
    if threads > 1:
        values["parallel"] = threads
    assert space.legal(values)
    function = scheduled_function(space.apply(space.candidate(values, "test")))
    generator = np.random.default_rng(0)
    a = generator.standard_normal((1, size, size, 64)).astype("float32")
    w = generator.standard_normal((kernel, kernel, 64)).astype("float32")
    target = fn.board(cores=threads).tvm_target
    found = fn.run(function, [a, w], (1, out, out, 64), target)
    np.testing.assert_allclose(found, fn.depthwise_numpy(a, w, stride), rtol=2e-5, atol=2e-5)
    # One row of results, `rows` columns and two vectors of channels, with the window around them.
    assert set(_workspaces(function)) == {kernel * ((rows - 1) * stride + kernel) * 32}


def _workspaces(function: tirx.PrimFunc) -> list[int]:
    """Elements of the buffers that the compiled program takes from the runtime."""
    found: list[int] = []

    def note(call: tvm.ir.Call) -> None:
        if getattr(call.op, "name", "") == "tirx.TVMBackendAllocWorkspace":
            found.append(int(call.args[2]) // 4)

    lowered = lower_function(function, "main", tvm.target.Target(fn.board().tvm_target))
    for part in lowered.functions.values():
        tvm_ffi.structural_walk(part.body, (tvm.ir.Call, note), order="post")
    return found


def test_only_inputs_whose_channels_are_vectors_are_copied_by_blocks() -> None:
    dense = space_for(fn.task(fn.convolution(9, 16, 32, 3, 1)), fn.board().hardware, 1)
    assert _choices(dense) == (PAD_COPY, PAD_PEEL)
    assert _choices(_space(12, 32, 1, 5)) == (PAD_COPY, PAD_PEEL, PAD_BLOCK)
    # A window of nine taps is little code to peel.
    assert _choices(_space(12, 32, 1, 3)) == (PAD_COPY, PAD_PEEL)
    # Three channels beside a whole vector: the last vector is not full.
    assert _choices(_space(12, 19, 1, 5)) == (PAD_COPY, PAD_PEEL)


def test_blocks_are_whole() -> None:
    space = _space(7, 64, 1, 5)
    assert space.legal(UNIT | {"rows": 7, "pad": PAD_BLOCK})
    assert not space.legal(UNIT | {"rows": 4, "pad": PAD_BLOCK})
    assert space.legal(UNIT | {"rows": 4, "pad": PAD_COPY})


def test_a_large_window_on_a_small_image_is_copied_by_blocks_and_a_large_image_is_peeled() -> None:
    board = fn.board()
    profile = DeviceProfile("test", board, board.hardware, 1)
    [small] = Gensor().propose(_space(7, 1152, 1, 5), profile, [], 1, seed=0)
    [large] = Gensor().propose(_space(112, 32, 1, 3), profile, [], 1, seed=0)
    assert small.value("pad") == PAD_BLOCK
    assert large.value("pad") == PAD_PEEL


def test_copies_stay_in_the_first_level() -> None:
    space = _space(56, 256, 1, 7)
    values = UNIT | {"rows": 7, "pad": PAD_BLOCK}
    # 7 rows and 13 columns of one vector of channels are 6 KB, and 3 times as many beside them fit 24 KB.
    assert space.legal(values)
    assert not space.legal(values | {"panel": 4})
    assert not space.legal(values | {"block2": 14})
    assert space.legal(values | {"block2": 14, "pad": PAD_COPY})


def test_what_neighbouring_blocks_copy_twice_costs_time() -> None:
    space = _space(56, 256, 1, 7)
    values = UNIT | {"rows": 7, "pad": PAD_BLOCK}
    one, two = (space.estimate_parts_s(values | {"block2": rows})["padding"] for rows in (1, 2))
    # 7 rows of the input for one of the result, 8 for two.
    assert one == pytest.approx(two * 7 / (8 / 2))
