"""A compiled kernel, run by Unicorn out of its shared library, with hooks on what it does.

Unicorn has no operating system: what kernels call of TVM's runtime and of the C library is done here.
"""

from __future__ import annotations

import ctypes
import hashlib
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from host.emulation.library import BASE, PAGE, SharedLibrary
from host.errors import EngineError
from host.files import is_sealed, seal
from host.places import cache_root

ArgumentSpec = tuple[Sequence[int], str]

# Addresses that no library reaches: what kernels call, data, stack, and where a call returns to.
_CALLS, _HEAP, _STACK, _RETURN = 0x6000_0000, 0x1_0000_0000, 0x7F00_0000, 0x6800_0000
_STACK_BYTES = 1 << 20
_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
_TENSOR_POINTER, _CPU = 7, 1
_ALIGNMENT = 64


class Event(Enum):
    """What a hook is called for; the value is Unicorn's name of it."""

    BLOCK = "UC_HOOK_BLOCK"
    ACCESS = "UC_HOOK_MEM_VALID"


@dataclass(frozen=True)
class _Registers:
    """Unicorn's numbers of registers.

    Attributes:
        counter: of the next instruction.
        stack, link: pointer to the stack, address to return to.
        arguments: the first four of a call; the first one has the result.
        enable: a register of the system and the bits that let floating point be used.
        inexact: the register and the bit that say that a result was rounded before.
    """

    counter: int
    stack: int
    link: int
    arguments: tuple[int, int, int, int]
    enable: tuple[int, int]
    inexact: tuple[int, int]


class KernelRun:
    """One kernel of a library in an engine of its own.

    Attributes:
        tensors: address and bytes of the data of each argument that was placed.

    Args:
        library: for aarch64, or for riscv64 without vectors.
        kernel: name of the function.

    Raises:
        EngineError: Unicorn is not installed.
    """

    def __init__(self, library: SharedLibrary, kernel: str) -> None:
        self._unicorn = _unicorn()
        self._kernel = kernel
        self._library = library
        self._engine, self._registers = _engine_of(self._unicorn, library.architecture)
        self._heap = _HEAP
        self._heap_end = _HEAP
        self._called = list(library.calls)
        self._failure = ""
        self.tensors: list[tuple[int, int]] = []
        # Kept for as long as the engine: Unicorn knows addresses only.
        self._kept: list[object] = []
        self._map()

    def watch(self, event: Event, hook: Any, state: Any) -> None:
        """Call a compiled function for each executed block of the library, or for each access of data.

        Args:
            event: when.
            hook: function of `compiled_hooks`, with the arguments that Unicorn documents.
            state: object of ctypes whose address the function gets last.

        Raises:
            EngineError: Unicorn refuses.
        """
        from unicorn.unicorn_py3.unicorn import uclib

        handle = ctypes.c_size_t()
        self._kept += [hook, state, handle]
        first, last = 1, 0
        if event is Event.BLOCK:
            first, last = BASE, BASE + self._library.memory_bytes
        status = uclib.uc_hook_add(
            self._engine._uch,
            ctypes.byref(handle),
            getattr(self._unicorn, event.value),
            ctypes.cast(hook, ctypes.c_void_p),
            ctypes.cast(ctypes.byref(state), ctypes.c_void_p),
            ctypes.c_uint64(first),
            ctypes.c_uint64(last),
        )
        if status:
            raise EngineError(f"Unicorn refuses to watch: {self._unicorn.UcError(status)}")

    def place(self, arguments: Sequence[ArgumentSpec]) -> tuple[int, int]:
        """Tensors of zeros as packed arguments (dlpack.h, tvm/ffi/c_api.h).

        Args:
            arguments: shape and dtype of each.

        Returns:
            The address of the first, and how many there are.
        """
        packed = b""
        for shape, dtype in arguments:
            kind = np.dtype(dtype)
            count = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
            sizes = self._reserve(8 * max(1, len(shape)))
            self._engine.mem_write(sizes, struct.pack(f"<{len(shape)}q", *shape))
            tensor = self._reserve(48)
            code = _CODES["b" if dtype == "bool" else kind.kind]
            self.tensors.append((self._reserve(count), count))
            fields = (self.tensors[-1][0], _CPU, 0, len(shape), code, 8 * kind.itemsize, 1, sizes, 0, 0)
            self._engine.mem_write(tensor, struct.pack("<QiiiBBHQQQ", *fields))
            packed += struct.pack("<iiQ", _TENSOR_POINTER, 0, tensor)
        address = self._reserve(len(packed))
        self._engine.mem_write(address, packed)
        return address, len(arguments)

    def call(self, placed: tuple[int, int]) -> None:
        """Call the kernel with arguments of `place`.

        Raises:
            EngineError: there is no such kernel, it fails, or it calls something that is not known here.
        """
        engine, registers = self._engine, self._registers
        engine.reg_write(registers.stack, _STACK - 1024)
        engine.reg_write(registers.link, _RETURN)
        for register, value in zip(registers.arguments, (0, *placed, self._reserve(16)), strict=True):
            engine.reg_write(register, value)
        try:
            engine.emu_start(BASE + self._library.function(self._kernel), _RETURN)
        except self._unicorn.UcError as error:
            raise EngineError(f"kernel {self._kernel} cannot be run: {error}") from error
        code = engine.reg_read(registers.arguments[0]) & 0xFFFF_FFFF
        if self._failure or code:
            raise EngineError(f"kernel {self._kernel} cannot be run: {self._failure or 'it fails'}")

    def _map(self) -> None:
        engine = self._engine
        engine.mem_map(BASE, self._library.memory_bytes)
        for address, data in self._library.segments:
            engine.mem_write(BASE + address, data)
        engine.mem_map(_CALLS, PAGE * (1 + len(self._called) * 4 // PAGE))
        for index, call in enumerate(self._called):
            for place in self._library.calls[call]:
                engine.mem_write(BASE + place, struct.pack("<Q", _CALLS + 4 * index))
        engine.mem_map(_RETURN, PAGE)
        engine.mem_map(_STACK - _STACK_BYTES, _STACK_BYTES)
        register, bits = self._registers.enable
        engine.reg_write(register, bits | engine.reg_read(register))
        # With this flag set, the emulator lets this machine's processor calculate: there is no flag to raise.
        engine.reg_write(*self._registers.inexact)
        end = _CALLS + 4 * max(1, len(self._called))
        engine.hook_add(self._unicorn.UC_HOOK_CODE, self._answer, None, _CALLS, end)

    def _answer(self, engine: Any, address: int, size: int, data: object) -> None:
        """Do what a function outside of the library would do, and go back to its caller."""
        call = self._called[(address - _CALLS) // 4]
        arguments, result = self._registers.arguments, self._registers.arguments[0]
        first, second, third = (int(engine.reg_read(register)) for register in arguments[:3])
        back = engine.reg_read(self._registers.link)
        if call == "TVMBackendAllocWorkspace":
            engine.reg_write(result, self._reserve(third))
        elif call == "TVMBackendFreeWorkspace":
            engine.reg_write(result, 0)
        elif call == "TVMBackendParallelLaunch":
            # One task does all of the work, and returns to who launched it.
            group = self._reserve(16)
            engine.mem_write(group, struct.pack("<Qi", 0, 1))
            for register, value in zip(arguments[:3], (0, group, second), strict=True):
                engine.reg_write(register, value)
            back = first
        elif call == "memset":
            engine.mem_write(first, bytes([second & 0xFF]) * third)
        elif call in ("memcpy", "memmove"):
            engine.mem_write(first, bytes(engine.mem_read(second, third)))
        else:
            self._failure = f"it calls {call}, whose instructions are not known here"
            engine.emu_stop()
            return
        engine.reg_write(self._registers.counter, back)

    def _reserve(self, count: int) -> int:
        address = self._heap
        self._heap += (max(count, 1) + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
        if self._heap > self._heap_end:
            more = (self._heap - self._heap_end + PAGE - 1) // PAGE * PAGE
            self._engine.mem_map(self._heap_end, more)
            self._heap_end += more
        return address


def _unicorn() -> ModuleType:
    try:
        import unicorn
    except ImportError as error:
        raise EngineError(
            "instructions are run by Unicorn, which is not installed: pip install 'edgetlm[emulation]'"
        ) from error
    found: ModuleType = unicorn
    return found


def _engine_of(unicorn: Any, architecture: str) -> tuple[Any, _Registers]:
    if architecture == "riscv64":
        from unicorn import riscv_const as names

        engine = unicorn.Uc(unicorn.UC_ARCH_RISCV, unicorn.UC_MODE_RISCV64)
        given = tuple(getattr(names, f"UC_RISCV_REG_A{number}") for number in range(4))
        # Floating point on: FS of mstatus.
        enable = (names.UC_RISCV_REG_MSTATUS, 3 << 13)
        inexact = (names.UC_RISCV_REG_FFLAGS, 1)
        counter, stack, link = names.UC_RISCV_REG_PC, names.UC_RISCV_REG_SP, names.UC_RISCV_REG_RA
        return engine, _Registers(counter, stack, link, given, enable, inexact)
    from unicorn import arm64_const

    engine = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
    # All instructions that it knows: products of bytes are none of its usual processor.
    engine.ctl_set_cpu_model(arm64_const.UC_CPU_ARM64_MAX)
    given = tuple(getattr(arm64_const, f"UC_ARM64_REG_X{number}") for number in range(4))
    counter, stack, link = (getattr(arm64_const, f"UC_ARM64_REG_{name}") for name in ("PC", "SP", "LR"))
    enable = (arm64_const.UC_ARM64_REG_CPACR_EL1, 3 << 20)
    inexact = (arm64_const.UC_ARM64_REG_FPSR, 1 << 4)
    return engine, _Registers(counter, stack, link, given, enable, inexact)


def compiled_hooks(source: str) -> ctypes.CDLL:
    """Hooks in C, compiled for this machine once: in Python they would take longer than all that is watched.

    Raises:
        EngineError: they do not compile.
    """
    path = cache_root() / "emulation" / f"hooks-{hashlib.sha256(source.encode()).hexdigest()[:16]}.so"
    if not is_sealed(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".partial-") as scratch:
            written, made = Path(scratch) / "hooks.c", Path(scratch) / "hooks.so"
            written.write_text(source)
            command = [sys.executable, "-m", "ziglang", "cc", "-shared", "-fPIC", "-O2", "-o", str(made)]
            done = subprocess.run([*command, str(written)], capture_output=True, text=True, check=False)
            if done.returncode:
                reason = " ".join(done.stderr.split())[:300]
                raise EngineError(f"the hooks of the emulator cannot be compiled: {reason}")
            seal(made, path)
    return ctypes.CDLL(str(path))
