"""Attention over a cache on a GPU: programs of all tiles beside NumPy, and what the estimate proposes."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import numpy as np
import pytest

from host.gensor import Gensor
from host.model import DeviceProfile
from host.schedules import DesignSpace, scheduled_function, space_for
from targets.nvidia import AGX_ORIN, ORIN_NANO
from tests.cuda_emulator.run import emulate
from tests.decoders.operations import cached_attention
from tests.unit.lowering.attention.test_cached_attention import Case, lowered
from tests.unit.schedules.cuda.cuda_cases import gpu_board, gpu_target

# One row and several, heads in groups, sizes that warps divide and others, windows, caps, halves; and where
# the first new row stands.
CASES = [
    (Case(1, 6, 2, 64, 128), 100),
    (Case(4, 4, 2, 40, 64, window=21, kept="float16", cap=0.75), 58),
    *(
        pytest.param(*one, marks=pytest.mark.long)
        for one in (
            (Case(1, 4, 4, 20, 64, kept="float16"), 0),
            (Case(5, 6, 2, 40, 128, window=37), 90),
            (Case(1, 4, 1, 32, 128, window=40), 127),
        )
    ),
]


def _space(case: Case) -> DesignSpace:
    board = gpu_board(ORIN_NANO)
    [task] = lowered(case, board).tasks
    space = space_for(task, board.hardware)
    assert space.rule.name == "cuda_cached_attention"
    return space


def test_estimates_of_a_long_cache_share_its_positions() -> None:
    """A step of one sequence has few heads: blocks that share positions are what fills a large GPU."""
    board = gpu_board(AGX_ORIN)
    [task] = lowered(Case(1, 16, 2, 128, 8192, kept="float16"), board).tasks
    space = space_for(task, board.hardware)
    profile = DeviceProfile("orin", board, board.hardware, 1)
    (made,) = Gensor().propose(space, profile, (), 1, seed=0)
    assert dict(made.decisions)["splits"] > 1
    choices = itertools.product(*(one.choices for one in space.decisions))
    every = [dict(zip((one.name for one in space.decisions), one, strict=True)) for one in choices]
    best = min(space.estimate_s(values) for values in every if space.legal(values))
    assert space.estimate_s(dict(made.decisions)) == best


@pytest.mark.parametrize(("case", "start"), CASES, ids=str)
def test_programs_compute_the_task(case: Case, start: int, tmp_path: Path) -> None:
    space, draw = _space(case), np.random.default_rng(7)
    shared = next(one.choices[-1] for one in space.decisions if one.name == "splits")
    for number, splits in enumerate((1, shared)):
        values = {**space.sample(random.Random(case.rows + number)), "splits": splits}
        arrays = [draw.normal(size=shape).astype(dtype) for shape, dtype in case.shapes]
        arrays[3] = np.array([start], np.int32)
        query, key, value, position, *kept = arrays
        keys, means = (one.astype("float32") for one in kept)
        wanted = cached_attention(query, key, value, position, keys, means, case.options)
        made = np.full(wanted.shape, np.nan, "float32")
        function = scheduled_function(space.apply(space.candidate(values, "test")))
        done = emulate(function, [*arrays, made], gpu_target(), tmp_path)
        tolerance = 2e-3 if case.kept == "float16" else 1e-5
        np.testing.assert_allclose(made, wanted, rtol=tolerance, atol=tolerance, err_msg=str(values))
        for ours, exact in zip(kept, (keys, means), strict=True):
            np.testing.assert_allclose(ours.astype("float32"), exact, rtol=1e-3)
        assert not any(one.spills for one in done.kernel.resources), values
        # Blocks that share positions pass their parts in memory that is planned for.
        assert done.kernel.workspace is not None
        assert (done.kernel.workspace.shared_bytes > 0) == (splits > 1)
