"""The panels of a block: written out where that is little code, a loop where the tile is much already."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import tirx

from host.build.kernel import lower_function
from host.schedules import scheduled_function, space_for
from host.schedules.cpu.tiled.roles import PAD_COPY, PAD_PEEL
from targets import declared_boards
from tests.unit.schedules import functions as fn

_SIZE, _CHANNELS = 12, 128
_ONE = {"panel": 1, "block": 1, "block2": 1, "unroll": 1, "rows2": 1, "vectors": 1, "fetch": 0}
# Nine products of each row.
_WRITTEN_OUT = {"window": 1}


def _program(values: Mapping[str, int]) -> tirx.PrimFunc:
    function = fn.depthwise(_SIZE, _CHANNELS, 1, 3)
    space = space_for(fn.task(function, "depthwise"), fn.board().hardware, 1)
    assert space.legal(dict(values))
    return scheduled_function(space.apply(space.candidate(dict(values), "test")))


def _stores(function: tirx.PrimFunc) -> int:
    """Statements that store, in the function that LLVM gets."""
    found: list[tirx.BufferStore] = []
    lowered = lower_function(function, "main", tvm.target.Target(fn.board().tvm_target))
    for part in lowered.functions.values():
        tvm_ffi.structural_walk(part.body, (tirx.BufferStore, found.append))
    return len(found)


@pytest.mark.parametrize(
    ("pad", "rows", "panel", "repeated"),
    [
        # 54 products of a tile; two panels of them are more than a peeled tile may have, 72.
        (PAD_PEEL, 6, 2, False),
        (PAD_PEEL, 4, 2, True),
        # Without peeled borders the code is there once.
        (PAD_COPY, 6, 2, True),
        (PAD_COPY, 6, 4, True),
    ],
)
def test_panels_are_written_out_within_the_bounds_of_a_tile(
    pad: int, rows: int, panel: int, repeated: bool
) -> None:
    one = _ONE | _WRITTEN_OUT | {"rows": rows, "pad": pad}
    several = _program(one | {"panel": panel})
    stores = _stores(_program(one))
    assert _stores(several) > 1.5 * stores if repeated else _stores(several) == stores


@pytest.mark.parametrize("panel", [2, 4])
def test_a_loop_over_panels_of_peeled_borders_computes_the_same(panel: int) -> None:
    function = _program(_ONE | _WRITTEN_OUT | {"rows": 6, "pad": PAD_PEEL, "panel": panel})
    generator = np.random.default_rng(0)
    a = generator.standard_normal((1, _SIZE, _SIZE, _CHANNELS)).astype("float32")
    w = generator.standard_normal((3, 3, _CHANNELS)).astype("float32")
    found = fn.run(function, [a, w], (1, _SIZE, _SIZE, _CHANNELS), fn.board().tvm_target)
    np.testing.assert_allclose(found, fn.depthwise_numpy(a, w, 1), rtol=2e-5, atol=2e-5)


def test_a_tile_of_one_element_has_nothing_to_vectorise() -> None:
    # Without vectors a vector is one element, and a loop over the panels stays around the tile.
    space = space_for(
        fn.task(fn.batched(2, 4, 256, 64), "batched"), declared_boards()["visionfive2"].hardware, 1
    )
    assert space.hardware.lanes == 1
    least = {decision.name: decision.choices[0] for decision in space.decisions}
    choices = {decision.name: decision.choices for decision in space.decisions}
    tried = 0
    for panel, unroll in itertools.product(choices["panel"], choices["unroll"]):
        values = least | {"panel": panel, "unroll": unroll}
        if space.legal(values):
            scheduled_function(space.apply(space.candidate(values, "test")))
            tried += 1
    assert tried > 10
