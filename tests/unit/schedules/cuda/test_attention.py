"""Attention on tensor cores: what it computes, where the rule applies, and what its programs ask of a GPU."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tvm import tirx

from host.build import compile_cuda
from host.errors import ScheduleError
from host.gensor.walk import WalkOptions, construct
from host.schedules import DesignSpace, scheduled_function, space_for
from host.schedules.cuda.attention.rule import tiles_of
from host.schedules.cuda.attention.tiles import shared_accesses
from host.schedules.cuda.tiled.banks import bank_passes
from targets import GpuModel
from targets.nvidia import AGX_ORIN, AGX_THOR, H100, ORIN_NANO, XAVIER_NX
from tests.cuda_emulator.run import emulate
from tests.unit.schedules import functions as fn
from tests.unit.schedules.cuda.attention_cases import Case
from tests.unit.schedules.cuda.cuda_cases import gpu_board, gpu_target

VALUES = {"rows": 16, "columns": 32, "warps": 2, "slices": 1, "stages": 2}
# Programs of what encoders have: BERT and ViT; keys of another length, masks of a text, of each score, with
# rows that see nothing; causal ones; heads of 80 and 72 elements; operands that are gathered.
CASES = {
    "vision": (Case(rows=37, columns=37), {**VALUES, "slices": 2, "columns": 16, "stages": 1}),
    "text": (Case(sequences=2, rows=32, columns=43, depth=32, width=32, mask=(2, 1, 1, 43)), VALUES),
    "causal": (
        Case(rows=45, columns=45, depth=32, width=32, causal=0),
        {**VALUES, "stages": 3, "columns": 16},
    ),
    "wide": (
        Case(heads=1, rows=33, columns=70, depth=80, width=72, turned=True, mask=(1, 1, 33, 70)),
        {**VALUES, "rows": 32, "warps": 1, "slices": 2},
    ),
}
MORE = {
    "single": Case(rows=20, columns=52, depth=48, single=True),
    "heads first": Case(rows=64, columns=64, between=False),
    "of 96": Case(rows=17, columns=130, depth=96, width=96),
    "of 128": Case(rows=50, columns=90, depth=128, width=128),
    "odd": Case(rows=18, columns=33, depth=33, width=35, between=False),
    "later rows": Case(rows=20, columns=50, causal=30, scale=1.7),
    "windows": Case(sequences=3, heads=3, rows=49, columns=49, depth=32, width=32, mask=(3, 3, 49, 49)),
    "long": Case(heads=1, rows=17, columns=700, depth=32, width=32),
}


def _space(case: Case, gpu: GpuModel = ORIN_NANO) -> DesignSpace:
    return space_for(fn.task(case.function()), gpu_board(gpu).hardware)


def _program(space: DesignSpace, values: dict[str, int]) -> tirx.PrimFunc:
    return scheduled_function(space.apply(space.candidate(values, "test")))


def _legal(space: DesignSpace) -> Iterator[dict[str, int]]:
    names = [decision.name for decision in space.decisions]
    for choice in itertools.product(*(decision.choices for decision in space.decisions)):
        values = dict(zip(names, choice, strict=True))
        if space.legal(values):
            yield values


def _check(case: Case, space: DesignSpace, values: dict[str, int], folder: Path) -> None:
    arrays = case.inputs(np.random.default_rng(1))
    wanted = case.output(arrays)
    made = np.full(wanted.shape, np.nan, wanted.dtype)
    done = emulate(_program(space, values), [*case.arguments(arrays), made], gpu_target(), folder)
    # Powers are rounded to halves.
    np.testing.assert_allclose(made, wanted, rtol=4e-3, atol=2e-3, err_msg=str(values))
    counters = done.counters
    assert counters.products
    assert counters.load_conflicts == counters.copy_conflicts == counters.access_conflicts == 0, values
    assert not any(resources.spills for resources in done.kernel.resources), values


@pytest.mark.parametrize("name", CASES)
def test_programs_compute_the_task(name: str, tmp_path: Path) -> None:
    case, values = CASES[name]
    space = _space(case)
    assert space.rule.name == "cuda_attention"
    _check(case, space, values, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", [*CASES, *MORE])
def test_random_programs_compute_the_task(name: str, tmp_path: Path) -> None:
    case = MORE[name] if name in MORE else CASES[name][0]
    space, generator = _space(case), random.Random(name)
    for _ in range(4):
        _check(case, space, space.sample(generator), tmp_path)


@pytest.mark.parametrize("change", ["wait", "barrier", pytest.param("commit", marks=pytest.mark.long)])
def test_the_emulation_sees_what_is_missing(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every wait, barrier and group of the pipeline is needed: without it the numbers are others."""
    case = Case(heads=1, rows=32, columns=64, depth=16, width=16)
    names = {"barrier": "block_barrier", "wait": "wait", "commit": "commit"}
    nothing = tirx.Evaluate(0)
    monkeypatch.setattr(f"host.schedules.cuda.mma.instructions.{names[change]}", lambda *_: nothing)
    arrays = case.inputs(np.random.default_rng(1))
    wanted = case.output(arrays)
    made = np.full(wanted.shape, np.nan, wanted.dtype)
    values = {**VALUES, "columns": 16}
    emulate(_program(_space(case), values), [*case.arguments(arrays), made], gpu_target(), tmp_path)
    assert not np.allclose(made, wanted, rtol=4e-3, atol=2e-3)


def test_no_lanes_meet_in_a_bank() -> None:
    for case in (CASES["vision"][0], CASES["wide"][0], MORE["windows"], MORE["of 96"], MORE["odd"]):
        space = _space(case)
        for values in _legal(space):
            for name, places, size in shared_accesses(tiles_of(space.workload, values)):
                words = {place // 4 + n for place in places for n in range(size // 4)}
                # As many lanes as shared memory serves at once.
                assert len(places) == 8 * 16 // size
                assert bank_passes(words, ORIN_NANO.shared_banks) == 1, (name, values)


def test_only_gpus_with_the_instruction_have_the_rule() -> None:
    for gpu in (AGX_ORIN, AGX_THOR, H100):
        assert _space(Case(), gpu).rule.name == "cuda_attention"
    assert XAVIER_NX.matrix_fp16_per_cycle == 0
    with pytest.raises(ScheduleError):
        _space(Case(), XAVIER_NX)


WALKS = {
    "BERT": Case(heads=12, rows=128, columns=128, mask=(1, 1, 1, 128)),
    "DeiT": Case(heads=6, rows=197, columns=197),
    "Whisper": Case(heads=8, rows=1500, columns=1500),
    "Swin": Case(sequences=64, heads=3, rows=49, columns=49, depth=32, width=32),
    "causal": Case(heads=16, rows=2048, columns=2048, depth=128, width=128, causal=0),
}


@pytest.mark.parametrize("gpu", [ORIN_NANO, H100], ids=lambda gpu: gpu.name)
@pytest.mark.parametrize("name", WALKS)
def test_construction_finds_the_best_by_its_estimate(name: str, gpu: GpuModel) -> None:
    space = _space(WALKS[name], gpu)
    (_, constructed), *_ = construct(space, space.estimate_s, WalkOptions(), 1, 0)
    best = min(map(space.estimate_s, _legal(space)))
    assert best / constructed >= 0.995


@pytest.mark.long
@pytest.mark.parametrize("gpu", [ORIN_NANO, AGX_THOR, H100], ids=lambda gpu: gpu.name)
@pytest.mark.parametrize("name", WALKS)
def test_constructed_programs_stay_in_registers(name: str, gpu: GpuModel) -> None:
    space = _space(WALKS[name], gpu)
    (values, _), *_ = construct(space, space.estimate_s, WalkOptions(), 1, 0)
    major = 13 if gpu is AGX_THOR else 12
    kernel = compile_cuda(_program(space, values), "kernel", gpu_target(gpu), cuda_major=major)
    assert not any(one.spills or one.stack_bytes for one in kernel.resources), values
