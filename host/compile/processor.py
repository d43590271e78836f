"""Which processor of a board a model is made for: its CPU, or its CUDA GPU."""

from __future__ import annotations

from dataclasses import replace

from device_agent.contract.text import printable
from host.errors import UserError
from host.model import DeviceProfile
from host.options import CompileOptions
from host.options.numeric_types import AUTO
from targets import Board, HardwareModel

# CUDA major versions that cubins can be made for: of JetPack 5, 6 and 7.
CUDA_MAJORS = (11, 12, 13)
# The first and the last of them that know an architecture (release notes of CUDA: sm_87 came with 11.4, sm_90
# with 11.8, sm_110 with 13.0, and Volta ended with 12).
_KNOWN = {"sm_72": (11, 12), "sm_87": (11, 13), "sm_90": (11, 13), "sm_110": (13, 13)}
# What a board has that was not asked: the CUDA of the usual JetPack.
_USUAL = {"sm_72": 11, "sm_87": 12, "sm_90": 12, "sm_110": 13}


def profile_for_processor(profile: DeviceProfile, options: CompileOptions) -> DeviceProfile:
    """The profile for `--processor gpu`; for "cpu" and "auto" that of the CPU, as it is.

    Args:
        profile: of the device's CPU.
        options: whose processor, CUDA version and numeric type are taken.

    Raises:
        UserError: see `gpu_profile`; or the processor has no dot products of bfloat16, which were asked for,
            or no fast type of half precision for `--dtype auto`.
    """
    if options.dtype == "bf16" and profile.hardware.bfloat16 is None:
        raise UserError(
            f"--dtype bf16: {printable(profile.board.title)} has no AVX-512 BF16 (avx512_bf16 in "
            "/proc/cpuinfo): use --dtype fp32, or --quantize int8 with samples"
        )
    if options.dtype == AUTO and not fast_half(profile.hardware):
        raise UserError(
            f"--dtype auto: {printable(profile.board.title)} computes in no type of half precision faster "
            "than in fp32: use --dtype fp32"
        )
    return gpu_profile(profile, options.cuda) if options.processor == "gpu" else profile


def fast_half(hardware: HardwareModel) -> str:
    """The half precision in which a CPU computes faster than in fp32: "bf16" or "fp16"; "" for none."""
    if hardware.has_fast_bfloat16_layers:
        return "bf16"
    return "fp16" if hardware.half_arithmetic else ""


def gpu_profile(profile: DeviceProfile, cuda: str = "") -> DeviceProfile:
    """The same device with programs made for its GPU.

    Args:
        profile: of its CPU.
        cuda: CUDA version of a board that is not there, "11.4" or "11"; "" takes that of the usual JetPack.
            What a board's agent says goes before.

    Raises:
        UserError: there is no GPU that programs can be made for, with the reason.
    """
    reason = why_no_gpu(profile, cuda)
    if reason:
        raise UserError(f"--processor gpu: {reason}; use --processor cpu")
    assert profile.board.gpu is not None
    version = profile.software.get("cuda") or cuda or str(_USUAL[profile.board.gpu.arch])
    board = profile.board.on_gpu()
    return replace(
        profile,
        board=board,
        hardware=replace(
            profile.hardware,
            gpu=board.gpu,
            dot_product="",
            byte_matrices=False,
            bfloat16=None,
            half_arithmetic=False,
        ),
        software={**profile.software, "cuda": version},
    )


def why_no_gpu(profile: DeviceProfile, cuda: str = "") -> str:
    """Why no program can be made for the board's GPU; "" if it can.

    Args:
        profile: of the device.
        cuda: see `gpu_profile`.
    """
    board = profile.board
    if board.gpu is None:
        return _without_gpu(board)
    found = profile.software.get("cuda", "")
    if profile.software and not found and not cuda:
        return f"the agent finds no CUDA on {profile.device}: install JetPack's CUDA there"
    version = found or cuda
    if not version:
        return "" if board.gpu.arch in _USUAL else f"no compiler of CUDA knows {board.gpu.arch}"
    major = version.split(".")[0]
    if not major.isdigit() or int(major) not in CUDA_MAJORS:
        return f"programs are made for CUDA {', '.join(map(str, CUDA_MAJORS))}, not for {version}"
    first, last = _KNOWN.get(board.gpu.arch, (0, 0))
    if not first <= int(major) <= last:
        return f"CUDA {major} does not know the {board.gpu.name} ({board.gpu.arch})"
    return ""


def _without_gpu(board: Board) -> str:
    if board.name == "jetson_nano":
        return "the first Jetson Nano ends with JetPack 4, and programs are made for CUDA 11 and newer"
    return f"no programs are made for a GPU of the {board.title}"
