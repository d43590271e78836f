"""Products of bytes on tensor cores: exact sums, requantised results, and which layouts the rule knows."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from host.schedules import scheduled_function, space_for
from host.schedules.cuda.mma.product import decided, product_of
from host.schedules.cuda.mma.tiles import shared_accesses, tiling_of
from host.schedules.cuda.tiled.banks import bank_passes
from targets.nvidia import AGX_THOR, H100, ORIN_NANO, XAVIER_NX
from tests.cuda_emulator.run import emulate
from tests.scheduling.repetitions import seeds
from tests.unit.schedules import functions as fn
from tests.unit.schedules.cpu.dot_cases import arguments, convolution_task, dense_task, expected, groups_task
from tests.unit.schedules.cuda import mma_cases as mma
from tests.unit.schedules.cuda.cuda_cases import gpu_board, gpu_target

TASKS = {
    "whole tiles": dense_task(64, 64, 64, 32, "int8", 16),
    "without sign": dense_task(64, 64, 64, 32, "uint8", 16),
    "ragged": dense_task(23, 48, 80, 16, "int8", 16),
    "a depth of eights": dense_task(37, 64, 72, 32, "uint8", 8),
    "a depth of fours": dense_task(19, 32, 36, 32, "int8", 4),
    "many steps": dense_task(16, 32, 656, 32, "int8", 16),
    "one row": dense_task(1, 64, 128, 32, "uint8", 16),
    "convolution": convolution_task(7, 32, 32, 32, "int8", 16),
    "convolution without sign, 24 channels": convolution_task(6, 24, 48, 16, "uint8", 8),
    "10 columns": dense_task(21, 10, 48, 10, "int8", 16),
    "convolution, 3 columns": convolution_task(7, 16, 3, 3, "uint8", 16),
    "groups": groups_task(6, 3, 32, 16, "uint8", 16),
    "groups of 4 channels": groups_task(6, 8, 4, 4, "int8", 4),
    "groups of 4 channels, stride 2, the last product not whole": groups_task(7, 6, 4, 4, "uint8", 4, 2),
    "groups of 8 channels, stride 2, the last product not whole": groups_task(6, 3, 8, 8, "int8", 8, 2),
    "groups of 12 channels": groups_task(5, 3, 12, 12, "uint8", 4),
    "groups of 24 channels, 6 columns": groups_task(5, 5, 24, 6, "int8", 8),
    "convolution, 4 channels": convolution_task(9, 4, 32, 32, "int8", 4),
}


@seeds(2)
@pytest.mark.parametrize("name", TASKS)
def test_random_programs_compute_the_task(name: str, seed: int, tmp_path: Path) -> None:
    """To the last bit: sums are exact, also of the constant around an image, and rounded as everywhere."""
    task = TASKS[name]
    space = space_for(task, gpu_board().hardware)
    assert space.rule.name == "cuda_mma"
    product = product_of(space.workload)
    assert product is not None
    generator = random.Random(name)
    values = [space.sample(generator, 50_000) for _ in range(seed + 1)][-1]
    given = arguments(task, seed=seed)
    function = scheduled_function(space.apply(space.candidate(values, "random")))
    done = emulate(function, given, gpu_target(), tmp_path)
    np.testing.assert_array_equal(given[-1], expected(task, given), err_msg=str(values))
    assert not any(resources.spills for resources in done.kernel.resources), values
    shared = max(resources.shared_bytes for resources in done.kernel.resources)
    wanted = tiling_of(decided(product, values), values).shared_bytes
    assert shared == (wanted if wanted <= ORIN_NANO.shared_per_block else 0)
    assert done.counters.products
    assert done.counters.load_conflicts == done.counters.copy_conflicts == 0, values


@pytest.mark.parametrize(
    ("name", "widths"),
    [
        ("whole tiles", (16, 16)),
        ("a depth of eights", (8, 8)),
        ("a depth of fours", (4, 4)),
        ("convolution", (16, 16)),
        ("convolution, 4 channels", (4, 4)),
        ("groups of 4 channels", (16, 4)),
        ("groups of 8 channels, stride 2, the last product not whole", (8, 8)),
    ],
)
def test_copies_are_as_wide_as_the_layout_allows(name: str, widths: tuple[int, int]) -> None:
    product = product_of(space_for(TASKS[name], gpu_board().hardware).workload)
    assert product is not None
    assert (product.left.width, product.right.width) == widths
    assert (product.chunk, product.mma_depth, product.sums) == (16, 32, "int32")


@pytest.mark.parametrize(
    "name", ["whole tiles", "a depth of eights", "a depth of fours", "groups of 4 channels"]
)
def test_no_access_to_shared_memory_meets_another_in_a_bank(name: str) -> None:
    space = space_for(TASKS[name], gpu_board().hardware)
    product = product_of(space.workload)
    assert product is not None
    generator = random.Random(1)
    drawn = [space.sample(generator, 50_000) for _ in range(60)]
    tilings = {tiling_of(decided(product, values), values) for values in drawn}
    for tiling in tilings:
        for access, places, size in shared_accesses(tiling):
            words = {place // 4 + word for place in places for word in range(size // 4)}
            assert bank_passes(words, ORIN_NANO.shared_banks) == 1, (access, tiling)
    assert len(tilings) > 10


def test_bytes_are_estimated_faster_than_halves() -> None:
    """Tensor cores take bytes at twice the rate, and copies move half as much."""
    values = {
        "rows": 64, "cols": 32, "row_warps": 2, "column_warps": 2, "slices": 1, "depth": 64, "stages": 2,
        "splits": 1,
    }  # fmt: skip
    of_bytes = space_for(dense_task(512, 512, 1024, 32, "int8", 16), gpu_board().hardware)
    of_halves = space_for(fn.task(mma.dense(512, 512, 1024)), gpu_board().hardware)
    assert of_bytes.legal(values) and of_halves.legal(values)
    assert of_bytes.estimate_s(values) < 0.7 * of_halves.estimate_s(values)


@pytest.mark.parametrize("gpu", [AGX_THOR, H100], ids=lambda gpu: gpu.arch)
def test_newer_gpus_take_the_same_rule(gpu: object) -> None:
    assert space_for(TASKS["whole tiles"], gpu_board(gpu).hardware).rule.name == "cuda_mma"  # type: ignore[arg-type]


def test_products_that_tensor_cores_do_not_take_have_a_rule(tmp_path: Path) -> None:
    """In the layout for tensor cores, on CUDA cores."""
    assert XAVIER_NX.matrix_int8_per_cycle == 0
    board = gpu_board(replace(ORIN_NANO, matrix_int8_per_cycle=0))
    for name in ("ragged", "a depth of fours"):
        task, space = TASKS[name], space_for(TASKS[name], board.hardware)
        assert space.rule.name == "cuda_tiled"
        given = arguments(task)
        values = space.sample(random.Random(2), 50_000)
        run = emulate(
            scheduled_function(space.apply(space.candidate(values, "random"))), given, gpu_target(), tmp_path
        )
        np.testing.assert_array_equal(given[-1], expected(task, given), err_msg=str(values))
        assert run.counters.products == run.counters.access_conflicts == 0
