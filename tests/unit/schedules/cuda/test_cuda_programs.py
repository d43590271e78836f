"""Programs for GPUs: whatever the decisions, they compute what the task says, within a GPU's limits."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import numpy as np
import pytest

from host.build import compile_cuda
from host.schedules import DesignSpace, scheduled_function, space_for
from host.schedules.cuda.tiled.copies import shared_bytes
from host.schedules.cuda.tiled.roles import block_of, cuda_roles
from targets.nvidia import AGX_ORIN, H100, ORIN_NANO, XAVIER_NX
from tests.cuda_emulator import source
from tests.cuda_emulator.run import emulate, launch_sizes
from tests.scheduling.repetitions import seeds
from tests.unit.schedules import functions as fn
from tests.unit.schedules.cuda.cuda_cases import cases, gpu_board, gpu_target

CASES = cases()
RULES = {
    "softmax": "cuda_rowwise",
    "softmax, lowered": "cuda_rowwise",
    "mean, lowered": "cuda_rowwise",
    "layer norm": "cuda_rowwise",
    "total": "cuda_rowwise",
    "total of filled rows": "cuda_rowwise",
    "addition": "cuda_injective",
    "transpose": "cuda_injective",
    "pooling": "cuda_windows",
}


def _space(name: str) -> DesignSpace:
    return space_for(fn.task(CASES[name].function, name), gpu_board().hardware)


@seeds(2)
@pytest.mark.parametrize("name", CASES)
def test_random_programs_compute_the_task(name: str, seed: int, tmp_path: Path) -> None:
    case, space = CASES[name], _space(name)
    assert space.rule.name == RULES.get(name, "cuda_tiled")
    generator = random.Random(3)
    values = [space.sample(generator, 50_000) for _ in range(seed + 1)][-1]
    output = np.full(case.output.shape, np.nan, "float32")
    function = scheduled_function(space.apply(space.candidate(values, "random")))
    run = emulate(function, [*case.inputs, output], gpu_target(), tmp_path)
    np.testing.assert_allclose(output, case.output, rtol=1e-4, atol=1e-4, err_msg=str(values))
    (resources,) = run.kernel.resources
    assert not resources.spills, values
    assert run.counters.access_conflicts == run.counters.not_counted == 0, values
    assert resources.shared_bytes <= ORIN_NANO.shared_per_block


@seeds(3)
@pytest.mark.parametrize(
    "name",
    ["dense", "convolution", "convolution stride 2, 5 channels", "depthwise", "grouped by 12", "batched"],
)
def test_copies_in_shared_memory_do_not_meet_in_banks(name: str, seed: int, tmp_path: Path) -> None:
    """Neither loads of vectors nor stores of copies, also where rows and planes need room."""
    case, space = CASES[name], _space(name)
    generator, output = random.Random(7), np.zeros_like(CASES[name].output)
    staged = (values for _ in itertools.count() if (values := space.sample(generator, 50_000))["stage"])
    values = next(itertools.islice(staged, seed, None))
    function = scheduled_function(space.apply(space.candidate(values, "random")))
    run = emulate(function, [*case.inputs, output], gpu_target(), tmp_path)
    assert run.counters.accesses and not run.counters.access_conflicts, values
    np.testing.assert_allclose(output, case.output, rtol=1e-4, atol=1e-4, err_msg=str(values))


@pytest.mark.parametrize("name", ["dense", "convolution", "convolution stride 2, 5 channels", "depthwise"])
def test_threads_and_shared_memory_are_as_counted(name: str) -> None:
    space = _space(name)
    anchor = space.workload.anchor_stage
    roles = cuda_roles(anchor)
    assert roles is not None
    generator = random.Random(5)
    for _ in range(2):
        values = space.sample(generator, 50_000)
        function = scheduled_function(space.apply(space.candidate(values, "random")))
        sizes = launch_sizes(function)
        assert [sizes[f"threadIdx.{axis}"] for axis in "xyz"] == [values[f"t{axis}"] for axis in "xyz"]
        assert block_of(values).threads <= 1024
        used = compile_cuda(function, "kernel", gpu_target()).resources[0].shared_bytes
        assert used <= shared_bytes(anchor, roles, values), values


def test_barriers_are_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulation sees a program that reads shared memory too early."""
    case, space = CASES["dense"], _space("dense")
    values = {
        "cols": 1, "rows": 1, "rows2": 1, "tx": 16, "ty": 4, "tz": 1, "vx": 1, "vy": 1,
        "stage": 1, "depth": 8, "steps": 2, "halo": 0, "fetch": 1,
    }  # fmt: skip
    function = scheduled_function(space.apply(space.candidate(values, "test")))
    output = np.full(case.output.shape, np.nan, "float32")
    emulate(function, [*case.inputs, output], gpu_target(), tmp_path)
    np.testing.assert_allclose(output, case.output, rtol=1e-4, atol=1e-4)
    real = source.translated
    monkeypatch.setattr(source, "translated", lambda text: real(text).replace("__syncthreads();", ""))
    emulate(function, [*case.inputs, output], gpu_target(), tmp_path)
    assert not np.allclose(output, case.output, rtol=1e-4, atol=1e-4)


def test_illegal_values_are_refused() -> None:
    space = _space("convolution")
    values = {
        "cols": 4, "rows": 1, "rows2": 1, "tx": 8, "ty": 8, "tz": 2, "vx": 1, "vy": 1,
        "stage": 1, "depth": 8, "steps": 4, "halo": 1, "fetch": 4,
    }  # fmt: skip
    assert space.legal(values)
    assert not space.legal({**values, "steps": 16})
    assert not space.legal({**values, "depth": 2}), "steps divide the staged depth"
    assert not space.legal({**values, "stage": 0}), "nothing to fetch without a stage"


def test_registers_and_packing_bound_the_tile() -> None:
    space = space_for(fn.task(fn.dense(512, 512, 512, 32)), gpu_board().hardware)
    values = {
        "cols": 4, "rows": 1, "rows2": 1, "tx": 16, "ty": 16, "tz": 1, "vx": 2, "vy": 8,
        "stage": 1, "depth": 8, "steps": 2, "halo": 0, "fetch": 4,
    }  # fmt: skip
    assert space.legal(values), "256 threads with 64 sums each"
    assert not space.legal({**values, "tx": 2}), "16 columns cut through a group of 32 packed ones"
    unstaged = {**values, "stage": 0, "fetch": 1}
    assert space.legal(unstaged)
    assert not space.legal({**unstaged, "tx": 32, "ty": 32}), "1024 threads have 64 registers each"
    assert not space.legal({**unstaged, "rows": 2, "vx": 4}), "256 sums are more than a thread has registers"


@pytest.mark.parametrize("gpu", [XAVIER_NX, AGX_ORIN, H100], ids=lambda gpu: gpu.arch)
def test_one_program_for_every_architecture(gpu: object) -> None:
    space = _space("convolution")
    values = space.sample(random.Random(1), 50_000)
    function = scheduled_function(space.apply(space.candidate(values, "random")))
    kernel = compile_cuda(function, "kernel", gpu_target(gpu))  # type: ignore[arg-type]
    assert not kernel.resources[0].spills
