"""Boards as the emulator runs them, and the processors that their programs must be right on."""

from __future__ import annotations

from dataclasses import replace

from targets import Board, board_for, declared

# Processors of the emulator, in its names, by board.
PROCESSORS: dict[str, tuple[str, ...]] = {
    "raspberry_pi_3": ("cortex-a53",),
    "raspberry_pi_4": ("cortex-a72",),
    "raspberry_pi_5": ("cortex-a76",),
    "jetson_agx_thor": ("max",),
    "rv64gc": ("rv64,v=false",),
    "rv64gcv": ("rv64,v=true,vlen=128", "rv64,v=true,vlen=256"),
    "spacemit_k1": ("rv64,v=true,vlen=256",),
    "visionfive2": ("rv64,v=false",),
}


def board_of(name: str) -> Board:
    """A declared board, made to suit what the emulator knows.

    Raises:
        KeyError: no such board.
    """
    found = board_for(declared()[name])
    assert found is not None
    if found.tvm_target["mcpu"] != "spacemit-x60":
        return found
    # The emulator of Debian 12 does not know all scalar extensions of the X60 (Zicond): the same vectors,
    # and the scalar part of any RISC-V core.
    features = ["+m", "+a", "+f", "+d", "+c", "+v", "+zvl256b"]
    return replace(found, tvm_target={**found.tvm_target, "mcpu": "generic-rv64", "mattr": features})
