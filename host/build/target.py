"""From a board's plain target dictionary to TVM's target."""

from __future__ import annotations

import tvm

from host.errors import BuildError
from targets import Board

# The machine names that the linker and the cache know, by the first part of an LLVM triple.
ARCHITECTURES = ("x86_64", "aarch64", "riscv64")


def target_for(board: Board) -> tvm.target.Target:
    """The TVM target of a board.

    Args:
        board: as declared in `targets`.

    Returns:
        A target with the board's triple, processor and number of cores.

    Raises:
        BuildError: TVM or LLVM refuses the dictionary, or it contradicts the board's architecture.
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
    return target


def architecture_of(target: tvm.target.Target) -> str:
    """The machine of a target's triple: "x86_64", "aarch64" or "riscv64".

    Raises:
        BuildError: the target has no triple or one of another architecture.
    """
    triple = str(target.attrs.get("mtriple", ""))
    architecture = triple.split("-")[0]
    if architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise BuildError(f"target triple '{triple}' is not of {known}; give tvm_target a full mtriple")
    return architecture
