"""From a board's plain target dictionary to TVM's target."""

from __future__ import annotations

from collections.abc import Mapping

import tvm

from host.build.cuda.nvrtc import MAJORS
from host.errors import BuildError
from targets import Board

# The machine names that the linker and the cache know, by the first part of an LLVM triple.
ARCHITECTURES = ("x86_64", "aarch64", "riscv64")

# Vector widths in bits, rising, and the feature that each of them takes.
_VECTOR_FEATURES = {
    "x86_64": ((256, "avx2"), (512, "avx512f")),
    "aarch64": ((128, "neon"), (256, "sve")),
    "riscv64": ((128, "v"), (256, "zvl256b")),
}


def target_for(board: Board) -> tvm.target.Target:
    """The TVM target of a board.

    Args:
        board: as declared in `targets`.

    Returns:
        A target with the board's triple, processor and number of cores.

    Raises:
        BuildError: TVM or LLVM refuses the dictionary, or it contradicts the board's architecture or
            the width of its vectors.
    """
    try:
        target = tvm.target.Target(dict(board.tvm_target))
    except (TypeError, ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[-1]
        raise BuildError(
            f"board {board.name}: TVM refuses its target ({reason}); correct tvm_target in targets/"
        ) from error
    if architecture_of(target) != board.architecture:
        raise BuildError(
            f"board {board.name}: architecture {board.architecture} but the target's triple is "
            f"{target.attrs.get('mtriple', 'missing')}; correct tvm_target in targets/"
        )
    feature = _vector_feature(board)
    processor = target if target.host is None else target.host
    if feature and not tvm.target.codegen.target_has_features(feature, processor):
        raise BuildError(
            f"board {board.name}: schedules are made for vectors of {board.hardware.vector_bits} bits, but"
            f" its target has no {feature}; correct mcpu or mattr of tvm_target, or vector_bits"
        )
    return target


def _vector_feature(board: Board) -> str:
    """The processor feature, in LLVM's spelling, that vectors of the board's width need at least."""
    needed = [
        name for bits, name in _VECTOR_FEATURES[board.architecture] if board.hardware.vector_bits >= bits
    ]
    return needed[-1] if needed else ""


def cuda_major(software: Mapping[str, str]) -> int:
    """CUDA major version that cubins for a device are of; 12 where its software does not report it.

    Args:
        software: versions by name, as in a device's profile.
    """
    major = software.get("cuda", "").split(".")[0]
    return int(major) if major.isdigit() and int(major) in MAJORS else 12


def architecture_of(target: tvm.target.Target) -> str:
    """The machine of the triple of a target or its host: "x86_64", "aarch64" or "riscv64".

    Raises:
        BuildError: the target has no triple or one of another architecture.
    """
    host = target if target.host is None else target.host
    triple = str(host.attrs.get("mtriple", ""))
    architecture = triple.split("-")[0]
    if architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise BuildError(f"target triple '{triple}' is not of {known}; give tvm_target a full mtriple")
    return architecture
