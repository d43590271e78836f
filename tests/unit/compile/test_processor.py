"""CPU or GPU: what can be asked of which board, and which of two that both run is taken."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from host.build import cuda_major
from host.compile.bundle_builder import BundleBuilder
from host.compile.model_compiler import ModelCompiler
from host.compile.processor import gpu_profile, profile_for_processor, why_no_gpu
from host.compile.variants import compiled_for_gpu, tunes_gpu
from host.deploy.deployment import compile_bundle
from host.errors import UserError
from host.model import BOARD, EMULATOR, DeviceProfile, TimingPolicy
from host.options import CompileOptions, DeployOptions
from targets import board_for, declared
from tests.integration.small_models import convnet
from tests.unit.schedules.cpu import bfloat16_cases


def profile(target: str, **software: str) -> DeviceProfile:
    board = board_for(declared()[target])
    assert board is not None
    return DeviceProfile(target, board, board.hardware, 1, software)


@pytest.mark.parametrize(
    ("target", "software", "cuda", "major"),
    [
        ("jetson_orin_nano", {}, "", 12),
        ("jetson_orin_nano", {}, "11", 11),
        ("jetson_orin_nano", {"cuda": "11.4.19", "l4t": "35.4.1"}, "", 11),
        ("jetson_agx_orin", {"cuda": "13.0"}, "", 13),
        ("jetson_xavier_nx", {}, "", 11),
        ("jetson_agx_thor", {}, "", 13),
    ],
)
def test_programs_for_the_cuda_of_the_board(
    target: str, software: dict[str, str], cuda: str, major: int
) -> None:
    on_gpu = gpu_profile(profile(target, **software), cuda)
    assert cuda_major(on_gpu.software) == major
    assert on_gpu.hardware.gpu == on_gpu.board.gpu
    assert on_gpu.board.tvm_target["kind"] == "cuda"


@pytest.mark.parametrize(
    ("target", "software", "cuda", "reason"),
    [
        ("jetson_nano", {}, "", "ends with JetPack 4"),
        ("raspberry_pi_5", {}, "", "no programs are made for a GPU of the Raspberry Pi 5"),
        ("jetson_xavier_nx", {"cuda": "13.0"}, "", "CUDA 13 does not know"),
        ("jetson_orin_nano", {"python": "3.10"}, "", "the agent finds no CUDA"),
        ("jetson_orin_nano", {}, "10.2", "CUDA 11, 12, 13, not for 10.2"),
    ],
)
def test_reasons_against_the_gpu(target: str, software: dict[str, str], cuda: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        gpu_profile(profile(target, **software), cuda)
    assert reason in why_no_gpu(profile(target, **software), cuda)


def test_a_bundle_for_a_jetson_holds_cubins_and_no_source(tmp_path: Path) -> None:
    options = CompileOptions(model=convnet(tmp_path / "model.onnx"), processor="gpu", backend="tvm")
    compile_bundle(options, "jetson_orin_nano", tmp_path / "bundle")
    manifest = json.loads((tmp_path / "bundle" / "manifest.json").read_text())
    assert manifest["target"]["kind"] == "cuda"
    assert manifest["versions"]["cuda"] == "12"
    content = b"".join(path.read_bytes() for path in (tmp_path / "bundle").iterdir() if path.is_file())
    # An ELF file of machine 190 (CUDA) for each kernel; neither CUDA C++ nor PTX in any form.
    assert content.count(b"\x7fELF\x02\x01\x01") > len(manifest["kernels"])
    for text in (b"__global__", b"__launch_bounds__", b".visible .entry", b".target sm_", b".address_size"):
        assert text not in content, text


def test_an_emulator_does_not_choose_between_processors(tmp_path: Path) -> None:
    said: list[str] = []
    clock: Any = SimpleNamespace(progress=SimpleNamespace(note=said.append))
    options = CompileOptions(model=convnet(tmp_path / "model.onnx"))
    board = profile("jetson_orin_nano", cuda="12.6")
    builder = BundleBuilder(ModelCompiler(options, board, tmp_path, clock))
    assert compiled_for_gpu(builder, SimpleNamespace(), timing=EMULATOR) is None  # type: ignore[arg-type]
    (reason,) = said
    assert reason.startswith("the GPU is left out: an emulator's times")


def test_unknown_processor_is_refused() -> None:
    with pytest.raises(UserError, match="no processor 'npu'"):
        CompileOptions(model=Path("m"), processor="npu").check()


def test_bfloat16_is_for_processors_that_multiply_it() -> None:
    found = profile("x86_64-v4")
    asked = CompileOptions(model=Path("m"), dtype="bf16")
    with pytest.raises(UserError, match=r"^--dtype bf16: .* has no AVX-512 BF16 .*: use --dtype fp32, or "):
        profile_for_processor(found, asked)
    assert profile_for_processor(found, CompileOptions(model=Path("m"), dtype="fp16")) is found
    board = bfloat16_cases.board()
    able = replace(found, board=board, hardware=board.hardware)
    assert profile_for_processor(able, asked) is able
    assert "+avx512bf16" in board.tvm_target["mattr"]  # type: ignore[operator]


def test_what_does_not_go_with_bfloat16_is_refused() -> None:
    with pytest.raises(UserError, match="--dtype bf16 does not go with a range of lengths"):
        CompileOptions(model=Path("m"), dtype="bf16", shapes={"n": ((1, 8),)}).check()
    with pytest.raises(UserError, match="--dtype bf16 is for the CPU: use --dtype fp16 with --processor gpu"):
        CompileOptions(model=Path("m"), dtype="bf16", processor="gpu").check()


def test_the_gpu_is_no_variant_of_a_model_in_bfloat16(tmp_path: Path) -> None:
    said: list[str] = []
    clock: Any = SimpleNamespace(progress=SimpleNamespace(note=said.append))
    options = CompileOptions(model=convnet(tmp_path / "model.onnx"), dtype="bf16")
    board = profile("jetson_orin_nano", cuda="12.6")
    builder = BundleBuilder(ModelCompiler(options, board, tmp_path, clock))
    assert compiled_for_gpu(builder, SimpleNamespace(), timing=BOARD) is None  # type: ignore[arg-type]
    assert said == ["the GPU is left out: --dtype bf16 is for the CPU"]


@pytest.mark.parametrize(
    ("target", "options", "timing", "gpu"),
    [
        ("jetson_orin_nano", {"trials": 2}, BOARD, True),
        ("jetson_orin_nano", {"budget_s": 9.0}, BOARD, True),
        ("jetson_orin_nano", {}, BOARD, False),
        ("jetson_orin_nano", {"trials": 2, "processor": "cpu"}, BOARD, False),
        ("jetson_orin_nano", {"trials": 2, "beside": ("other",)}, BOARD, False),
        ("jetson_orin_nano", {"trials": 2, "dtype": "bf16"}, BOARD, False),
        ("jetson_orin_nano", {"trials": 2}, EMULATOR, False),
        ("jetson_nano", {"trials": 2}, BOARD, False),
        ("raspberry_pi_5", {"trials": 2}, BOARD, False),
    ],
)
def test_trials_and_budgets_are_for_the_gpu_where_there_is_one(
    target: str, options: dict[str, Any], timing: TimingPolicy, gpu: bool
) -> None:
    assert tunes_gpu(DeployOptions(model=Path("m"), **options), profile(target), timing) is gpu
