"""Construction for GPUs: occupancy, banks, and programs that neither spill nor exceed a block's memory."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from host.build import compile_cuda
from host.gensor import Gensor
from host.gensor.walk import WalkOptions
from host.model import Candidate, DeviceProfile
from host.schedules import DesignSpace, scheduled_function, space_for
from host.schedules.cuda.multiprocessor import Work, occupancy, start_cycles, waves
from host.schedules.cuda.tiled.banks import apart, bank_passes
from host.schedules.cuda.tiled.cost import transaction_bytes
from targets.nvidia import AGX_ORIN, ORIN_NANO
from tests.unit.schedules import functions as fn
from tests.unit.schedules.cuda.cuda_cases import gpu_board, gpu_target, grouped, layer_norm, pooling

BOARD = gpu_board()
PROFILE = DeviceProfile("test", BOARD, BOARD.hardware, 1)
FUNCTIONS = {
    "dense": fn.dense(128, 768, 768, 32),
    "dense, 197 rows": fn.dense(197, 384, 192, 32),
    "dense, one row": fn.dense(1, 1024, 512, 32),
    "batched": fn.batched(12, 128, 128, 64),
    "convolution": fn.convolution(28, 64, 64, 3, 1, 32),
    "convolution stride 2": fn.convolution(28, 64, 128, 3, 2, 32),
    "convolution 1x1": fn.convolution(14, 256, 128, 1, 1, 32),
    "stem": fn.convolution(56, 3, 32, 3, 2, 32),
    "depthwise": fn.depthwise(28, 96, 1),
    "grouped": grouped(16, 4, 16, 32),
    "pooling": pooling(28, 64),
    "softmax": fn.softmax(12, 128, 128),
    "layer norm": layer_norm(1, 128, 768),
    "addition": fn.addition(1, 28, 28, 64),
    "transpose": fn.transpose((1, 128, 12, 64), (0, 2, 3, 1)),
}
SPILL_FREE = {name for name in FUNCTIONS if name.startswith(("dense", "convolution", "batched", "stem"))}


def _space(name: str) -> DesignSpace:
    return space_for(fn.task(FUNCTIONS[name], name), BOARD.hardware)


def _construct(name: str, tree: bool = False) -> tuple[DesignSpace, Candidate]:
    space = _space(name)
    return space, Gensor(tree=tree).propose(space, PROFILE, [], 1, seed=0)[0]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_constructed_programs_compile_within_a_blocks_means(name: str) -> None:
    space, candidate = _construct(name)
    (resources,) = compile_cuda(scheduled_function(space.apply(candidate)), "kernel", gpu_target()).resources
    assert resources.shared_bytes <= ORIN_NANO.shared_per_block
    assert 0 < resources.registers <= ORIN_NANO.registers_per_thread
    if name in SPILL_FREE:
        assert not resources.spills
        assert resources.stack_bytes == 0


@pytest.mark.parametrize("name", ["dense", "convolution", "softmax"])
def test_construction_is_repeatable_and_beats_the_unit_program(name: str) -> None:
    space, candidate = _construct(name)
    assert Gensor().propose(space, PROFILE, [], 1, seed=0) == [candidate]
    unit = {decision.name: decision.choices[0] for decision in space.decisions}
    assert candidate.estimate_s < 0.2 * space.estimate_s(unit)
    assert candidate.estimate_s <= _construct(name, tree=True)[1].estimate_s


def test_a_matrix_product_is_staged_in_shared_memory() -> None:
    values = dict(_construct("dense")[1].decisions)
    assert values["stage"] == 1
    assert values["tx"] * values["ty"] * values["tz"] >= 64
    assert values["cols"] * values["rows"] * values["vx"] * values["vy"] >= 8


def test_factors_of_a_tile_are_changed_together() -> None:
    """Patches of a vision transformer: what threads along an axis gain, its virtual threads have to give."""
    space = space_for(fn.task(fn.convolution(224, 3, 384, 16, 16, 32)), BOARD.hardware)
    costs = [
        Gensor(options=WalkOptions(exchange=exchange)).propose(space, PROFILE, [], 1, seed=0)[0].estimate_s
        for exchange in (False, True)
    ]
    assert costs[1] < 0.99 * costs[0]
    generator = random.Random(0)
    assert costs[1] <= min(space.estimate_s(space.sample(generator)) for _ in range(500)) / 0.995


def test_more_multiprocessors_are_faster() -> None:
    large = gpu_board(AGX_ORIN)
    space, candidate = _construct("convolution")
    there = replace(space, hardware=large.hardware)
    values = {name: int(value) for name, value in candidate.decisions}
    assert there.estimate_s(values) < 0.6 * space.estimate_s(values)


def test_residence_is_bound_by_the_scarcest() -> None:
    # 256 threads with 128 registers take half of the registers; 60 KiB fit twice; 1536 threads are 6 blocks.
    assert occupancy(ORIN_NANO, 100, 256, 128, 0).per_multiprocessor == 2
    assert occupancy(ORIN_NANO, 100, 256, 32, 60 << 10).per_multiprocessor == 2
    assert occupancy(ORIN_NANO, 100, 256, 32, 0).per_multiprocessor == 6
    assert occupancy(ORIN_NANO, 100, 32, 16, 0).per_multiprocessor == 16


def test_waves() -> None:
    gpu = replace(ORIN_NANO, block_cycles=0.0, warp_cycles=0.0)
    placed = occupancy(gpu, 16, 256, 128, 0)
    one = waves(gpu, placed, Work(100.0, 150.0))
    assert one == 200.0, "two blocks on each of eight multiprocessors"
    assert waves(gpu, replace(placed, grid=17), Work(100.0, 150.0)) == 350.0, "one more waits for itself"


def test_blocks_start_one_after_the_other() -> None:
    gpu = replace(ORIN_NANO, block_cycles=120.0, warp_cycles=10.0)
    placed = occupancy(gpu, 16, 256, 128, 0)
    assert waves(gpu, placed, Work(100.0, 150.0)) == 240.0, "two starts are more than the work"
    assert waves(gpu, placed, Work(100.0, 300.0)) == 380.0, "eight warps start before the work"
    assert start_cycles(gpu, 17, 64) == (360.0, 20.0)


def test_banks() -> None:
    assert bank_passes({0}, 32) == 1, "all threads want the same word"
    assert bank_passes(set(range(32)), 32) == 1
    assert bank_passes({32 * n for n in range(8)}, 32) == 8
    assert bank_passes({36 * n for n in range(8)}, 32) == 1
    assert apart(tuple(4 * n for n in range(64)), 4), "each word of two warps in a bank of its own"
    assert not apart(tuple(8 * n for n in range(32)), 4), "every other bank"
    assert apart(tuple(8 * n for n in range(32)), 8), "half a warp at a time"
    assert apart(tuple(16 * n for n in range(32)), 16), "a quarter at a time"
    assert not apart(tuple(32 * n for n in range(8)), 16), "with eight words between four"
    assert apart((0, 128) * 16, 16) is False and apart((0,) * 32, 16)


def test_virtual_threads_avoid_conflicts() -> None:
    """Threads with eight neighbouring rows meet in banks; the same tile interleaved has a layout without."""
    space = _space("dense")
    values = {
        "cols": 4, "rows": 8, "rows2": 1, "tx": 16, "ty": 8, "tz": 1, "vx": 1, "vy": 1,
        "stage": 1, "depth": 32, "steps": 1, "halo": 0, "fetch": 4,
    }  # fmt: skip
    assert not space.legal(values)
    assert space.legal({**values, "rows": 1, "vy": 8})
    assert space.legal({**values, "stage": 0, "fetch": 1}), "nothing is in shared memory"


def test_transactions_are_whole() -> None:
    access = _space("dense").workload.anchor_stage.reads[0]
    assert access.shape == (128, 768)
    assert transaction_bytes(access, (4, 8), ORIN_NANO) == 4 * 32
    assert transaction_bytes(access, (4, 1), ORIN_NANO) == 4 * 32
    assert transaction_bytes(access, (2, 768), ORIN_NANO) == 2 * 768 * 4
