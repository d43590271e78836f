"""Executed blocks of an emulated program, counted exactly: Unicorn runs the executable of the emulation.

Unicorn has no operating system: the three calls that the program makes (read, write, exit) are answered here.
"""

from __future__ import annotations

import ctypes
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import unicorn
from unicorn import arm64_const, riscv_const, unicorn_const
from unicorn.unicorn_py3.unicorn import uclib

from research.modelled_boards.listing import Block
from tests.emulation.qemu import Call, decoded, encoded

_SOURCE = Path(__file__).with_name("counter.c")
_LOAD, _PAGE = 1, 4096
_STACK, _STACK_BYTES = 0x7F00_0000, 1 << 20
_READ, _WRITE, _EXIT = 63, 64, 93


@dataclass(frozen=True)
class _Machine:
    """Names of the registers of an architecture, and how to let it use its floating-point unit."""

    arch: int
    mode: int
    program_counter: int
    stack: int
    arguments: tuple[int, int, int]
    number: int
    enable: tuple[int, int]


_MACHINES = {
    "aarch64": _Machine(
        unicorn_const.UC_ARCH_ARM64,
        unicorn_const.UC_MODE_ARM,
        arm64_const.UC_ARM64_REG_PC,
        arm64_const.UC_ARM64_REG_SP,
        (arm64_const.UC_ARM64_REG_X0, arm64_const.UC_ARM64_REG_X1, arm64_const.UC_ARM64_REG_X2),
        arm64_const.UC_ARM64_REG_X8,
        (arm64_const.UC_ARM64_REG_CPACR_EL1, 3 << 20),
    ),
    "riscv64": _Machine(
        unicorn_const.UC_ARCH_RISCV,
        unicorn_const.UC_MODE_RISCV64,
        riscv_const.UC_RISCV_REG_PC,
        riscv_const.UC_RISCV_REG_SP,
        (riscv_const.UC_RISCV_REG_A0, riscv_const.UC_RISCV_REG_A1, riscv_const.UC_RISCV_REG_A2),
        riscv_const.UC_RISCV_REG_A7,
        (riscv_const.UC_RISCV_REG_MSTATUS, 3 << 13),
    ),
}


class _Counts(ctypes.Structure):
    _fields_ = [
        ("base", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("changed", ctypes.c_uint64),
        ("runs", ctypes.c_void_p),
        ("sizes", ctypes.c_void_p),
    ]


def build_counter(folder: Path) -> Path:
    """Compile the hook for this machine.

    Raises:
        RuntimeError: it does not compile.
    """
    library = folder / "counter.so"
    command = [sys.executable, "-m", "ziglang", "cc", "-shared", "-fPIC", "-O2", "-o", str(library)]
    done = subprocess.run([*command, str(_SOURCE)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return library


def count_blocks(
    program: Path, names: Sequence[str], call: Call, architecture: str, counter: Path
) -> tuple[list[np.ndarray], list[Block]]:
    """The arguments of one call as they are after it, and every block of the program that was executed.

    Args:
        program: of `executable`.
        names: kernels in the order in which they were given to it.
        call: what to call.
        architecture: "aarch64" or "riscv64"; vectors of RISC-V are unknown to Unicorn.
        counter: of `build_counter`.

    Raises:
        RuntimeError: the program ends with an error or touches memory that is not its own.
    """
    machine = _MACHINES[architecture]
    engine = unicorn.Uc(machine.arch, machine.mode)
    entry, base, code = _load(engine, program.read_bytes())
    engine.mem_map(_STACK - _STACK_BYTES, _STACK_BYTES)
    engine.reg_write(machine.stack, _STACK - 64)
    engine.reg_write(machine.enable[0], machine.enable[1] | engine.reg_read(machine.enable[0]))
    runs, sizes = np.zeros(code // 2 + 1, np.uint32), np.zeros(code // 2 + 1, np.uint32)
    counts = _Counts(base, code, 0, runs.ctypes.data, sizes.ctypes.data)
    hook = ctypes.CDLL(str(counter)).count_block
    handle = ctypes.c_size_t()
    status = uclib.uc_hook_add(
        engine._uch,
        ctypes.byref(handle),
        unicorn_const.UC_HOOK_BLOCK,
        ctypes.cast(hook, ctypes.c_void_p),
        ctypes.cast(ctypes.byref(counts), ctypes.c_void_p),
        ctypes.c_uint64(1),
        ctypes.c_uint64(0),
    )
    if status:
        raise RuntimeError(f"Unicorn refuses the hook: {unicorn.UcError(status)}")
    system = _System(machine, encoded(names, [call]))
    engine.hook_add(unicorn_const.UC_HOOK_INTR, system.answer)
    try:
        engine.emu_start(entry, 0)
    except unicorn.UcError as error:
        at = engine.reg_read(machine.program_counter)
        raise RuntimeError(f"the emulated program ended at {at:#x}: {error}") from error
    if system.code or counts.changed:
        raise RuntimeError(f"the emulated program ended with {system.code}, {counts.changed} blocks changed")
    executed = np.flatnonzero(runs)
    blocks = [Block(base + 2 * int(at), int(sizes[at]), int(runs[at])) for at in executed]
    [values] = decoded(bytes(system.written), [call])
    return values, blocks


class _System:
    """Answers the program's system calls."""

    def __init__(self, machine: _Machine, given: bytes) -> None:
        self._machine, self._given, self._at = machine, given, 0
        self.written = bytearray()
        self.code: int | None = None

    def answer(self, engine: unicorn.Uc, number: int, data: object) -> None:
        """One call; anything but reading, writing and leaving is an error of the program."""
        machine = self._machine
        first, address, size = (int(engine.reg_read(register)) for register in machine.arguments)
        call = engine.reg_read(machine.number)
        if call == _READ:
            piece = self._given[self._at : self._at + size]
            self._at += len(piece)
            engine.mem_write(address, piece)
        elif call == _WRITE:
            self.written += engine.mem_read(address, size)
        else:
            self.code = first if call == _EXIT else -number
            engine.emu_stop()
            return
        engine.reg_write(machine.arguments[0], size)


def _load(engine: unicorn.Uc, content: bytes) -> tuple[int, int, int]:
    """Map a static executable; its entry, and address and bytes of its code (ELF specification, 64 bits)."""
    entry, headers = struct.unpack_from("<QQ", content, 24)
    size, count = struct.unpack_from("<HH", content, 54)
    segments = [struct.unpack_from("<IIQQQQQQ", content, headers + i * size) for i in range(count)]
    loaded = [segment for segment in segments if segment[0] == _LOAD]
    first = min(segment[3] for segment in loaded) // _PAGE * _PAGE
    last = max(segment[3] + segment[6] for segment in loaded)
    engine.mem_map(first, (last - first + _PAGE - 1) // _PAGE * _PAGE)
    base = code = 0
    for _, flags, offset, address, _, stored, _, _ in loaded:
        engine.mem_write(address, content[offset : offset + stored])
        if flags & 1:
            base, code = address, stored
    return entry, base, code
