"""Boards' processors as qemu's user mode knows them."""

from __future__ import annotations

from host.errors import UserError
from targets import Board, board_for, declared

# By board; qemu 7.2 (Debian 12) does not know all extensions of SpacemiT's X60.
_PROCESSORS = {
    "aarch64": "cortex-a72",
    "raspberry_pi_3": "cortex-a53",
    "raspberry_pi_4": "cortex-a72",
    "raspberry_pi_5": "cortex-a76",
    # All that the emulator knows, products of matrices of bytes among it: it has no core of Armv9.
    "jetson_agx_thor": "max",
    "rv64gc": "rv64,v=false",
    "visionfive2": "rv64,v=false",
    "rv64gcv": "rv64,v=true,vlen={bits}",
}
DEFAULT_BOARD = {"aarch64": "aarch64", "riscv64": "rv64gcv"}
VECTOR_BITS = (128, 256, 512)


def emulated_board(architecture: str, board: str = "") -> Board:
    """The board that a device is to be.

    Args:
        architecture: "aarch64" or "riscv64".
        board: its name, "" for the architecture's plain one.

    Raises:
        UserError: it cannot be emulated.
    """
    if architecture not in DEFAULT_BOARD:
        raise UserError(f"{architecture!r} cannot be emulated; there is {', '.join(DEFAULT_BOARD)}")
    name = board or DEFAULT_BOARD[architecture]
    machine = declared().get(name)
    found = board_for(machine) if machine is not None else None
    if name not in _PROCESSORS or found is None or found.architecture != architecture:
        known = [one for one in _PROCESSORS if _architecture(one) == architecture]
        raise UserError(f"{name!r} cannot be emulated as {architecture}; use --board with {', '.join(known)}")
    return found


def processor(board: str, vector_bits: int = 256) -> str:
    """Qemu's name and options of a board's processor.

    Raises:
        UserError: the vectors cannot be of this length.
    """
    if vector_bits not in VECTOR_BITS:
        raise UserError(
            f"--vector-bits {vector_bits} is not possible; use {', '.join(map(str, VECTOR_BITS))}"
        )
    return _PROCESSORS[board].format(bits=vector_bits)


def _architecture(board: str) -> str:
    return "riscv64" if "rv64" in _PROCESSORS[board] else "aarch64"
