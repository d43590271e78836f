"""Products whose sums are halves for a tile of the depth: where they are allowed, and how exact they are."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.gpu.machine_code import opcodes_of
from host.gensor.walk import WalkOptions, construct
from host.schedules import scheduled_function, space_for
from targets.nvidia import AGX_ORIN, AGX_THOR, H100, ORIN_NANO
from tests.cuda_emulator.run import emulate
from tests.unit.schedules import functions as fn
from tests.unit.schedules.cuda import mma_cases as mma
from tests.unit.schedules.cuda.cuda_cases import gpu_board, gpu_target

# A GPU whose rate with sums in single precision is half of that with sums in halves, as GeForce's of sm_86.
FASTER = replace(ORIN_NANO, arch="sm_86", matrix_fp16_per_cycle=512, matrix_half_sums_per_cycle=1024)
VALUES = {
    "rows": 32, "cols": 32, "row_warps": 2, "column_warps": 1, "slices": 1, "depth": 64, "stages": 2,
    "splits": 1, "single": 0,
}  # fmt: skip


@pytest.mark.parametrize("changed", [{}, {"depth": 16}, {"slices": 2, "depth": 32}, {"splits": 3}])
def test_sums_in_halves_are_as_exact_as_their_roundings(changed: dict[str, int], tmp_path: Path) -> None:
    case = mma.dense_case(64, 64, 330)
    space = space_for(fn.task(case.function), gpu_board(FASTER).hardware)
    assert space.rule.name == "cuda_mma_halves"
    values = {**VALUES, **changed}
    assert space.legal(values)
    program = scheduled_function(space.apply(space.candidate(values, "test")))
    output = np.full(case.output.shape, np.nan, case.output.dtype)
    done = emulate(program, [*case.inputs, output], gpu_target(), tmp_path)
    error = np.abs(output.astype("float64") - case.output.astype("float64")).max()
    # Sums of 64 products are below 32, where halves are 2^-6 apart; six of them with four roundings each.
    assert 0.0 < error < 6 * 4 * 2.0**-7
    assert not any(resources.spills for resources in done.kernel.resources)
    codes = sum(opcodes_of(done.kernel.cubin.content).values(), start=Counter())
    kinds = Counter(".".join(one.split(".")[:3]) for one in codes.elements() if one.startswith("HMMA"))
    assert set(kinds) == {"HMMA.16816.F16"}
    single = np.full(case.output.shape, np.nan, case.output.dtype)
    program = scheduled_function(space.apply(space.candidate({**values, "single": 1}, "test")))
    emulate(program, [*case.inputs, single], gpu_target(), tmp_path)
    np.testing.assert_allclose(single, case.output, rtol=1e-3, atol=1e-3)


def test_only_gpus_that_gain_have_the_decision() -> None:
    for gpu in (ORIN_NANO, AGX_ORIN, AGX_THOR, H100):
        space = space_for(fn.task(mma.dense(128, 768, 768)), gpu_board(gpu).hardware)
        assert space.rule.name == "cuda_mma"
        assert "single" not in {decision.name for decision in space.decisions}


def test_results_that_a_half_may_not_hold_are_not_added_up_in_halves() -> None:
    for half, name in ((True, "cuda_mma_halves"), (False, "cuda_mma")):
        function = mma.batched(12, 128, 128, 64, half=half)
        assert space_for(fn.task(function), gpu_board(FASTER).hardware).rule.name == name


def test_the_estimate_takes_sums_in_halves_where_tensor_cores_bound() -> None:
    space = space_for(fn.task(mma.dense(1024, 3072, 768)), gpu_board(FASTER).hardware)
    (values, seconds), *_ = construct(space, space.estimate_s, WalkOptions(), 1, 0)
    assert values["single"] == 0
    plain = space_for(
        fn.task(mma.dense(1024, 3072, 768)), gpu_board(replace(FASTER, matrix_half_sums_per_cycle=0)).hardware
    )
    (_, slower), *_ = construct(plain, plain.estimate_s, WalkOptions(), 1, 0)
    assert 1.2 < slower / seconds < 2.0


def test_sums_in_halves_are_of_few_products() -> None:
    space = space_for(fn.task(mma.dense(256, 256, 512)), gpu_board(FASTER).hardware)
    assert space.legal(VALUES)
    generator = random.Random(0)
    for _ in range(50):
        values = space.sample(generator, 50_000)
        assert values["single"] or values["depth"] <= 64
