"""Instructions that compiled kernels execute, counted exactly: Unicorn runs the shared library as it is.

The time that an emulator takes says nothing of a board; what its processor has to execute is the same there.
What the C library does in a kernel's name (copying and filling memory) is done here and not counted.
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
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from host.emulation.library import BASE, PAGE, SharedLibrary
from host.errors import EngineError
from host.places import cache_root
from host.sealed import is_sealed, seal

ArgumentSpec = tuple[Sequence[int], str]

# Addresses that no library reaches: what kernels call, data, stack, and where a call returns to.
_CALLS, _HEAP, _STACK, _RETURN = 0x6000_0000, 0x1_0000_0000, 0x7F00_0000, 0x6800_0000
_STACK_BYTES = 1 << 20
_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
_TENSOR_POINTER, _CPU = 7, 1
_ALIGNMENT = 64
_HOOK = """#include <stdint.h>
void count_block(void *engine, uint64_t address, uint32_t bytes, uint64_t *total) { *total += bytes / 4; }
"""


@dataclass(frozen=True)
class KernelCall:
    """One kernel of a library as a model calls it.

    Attributes:
        name: of the function.
        arguments: shape and dtype of each.
        calls: in one run of the model.
    """

    name: str
    arguments: tuple[ArgumentSpec, ...]
    calls: int


def count_model(library: Path, kernels: Sequence[KernelCall]) -> int:
    """Instructions of one run of a model: all calls of its kernels, on one core.

    Args:
        library: for aarch64.
        kernels: every kernel that the model calls.

    Raises:
        EngineError: Unicorn is not installed, or a kernel calls something whose instructions are not known
            here.
    """
    content = library.read_bytes()
    return sum(one.calls * count_kernel(content, one.name, one.arguments) for one in kernels)


def count_kernel(content: bytes, name: str, arguments: Sequence[ArgumentSpec]) -> int:
    """Instructions of one call of a kernel with zeros.

    Args:
        content: of a shared library for aarch64.
        name: of the function.
        arguments: shape and dtype of each.

    Raises:
        EngineError: see `count_model`.
    """
    library = SharedLibrary(content)
    return _Run(_unicorn(), library, name).count(arguments)


def _unicorn() -> ModuleType:
    try:
        import unicorn
    except ImportError as error:
        raise EngineError(
            "instructions are counted by Unicorn, which is not installed: pip install 'edgetlm[emulation]'"
        ) from error
    found: ModuleType = unicorn
    return found


class _Run:
    """One call of one kernel in an engine of its own."""

    def __init__(self, unicorn: Any, library: SharedLibrary, name: str) -> None:
        from unicorn import arm64_const

        self._registers = arm64_const
        self._kernel = name
        self._library = library
        self._unicorn = unicorn
        self._engine = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        # All instructions that it knows: products of bytes are none of its usual processor.
        self._engine.ctl_set_cpu_model(arm64_const.UC_CPU_ARM64_MAX)
        self._heap = _HEAP
        self._heap_end = _HEAP
        self._called = list(library.calls)
        self._failure = ""

    def count(self, arguments: Sequence[ArgumentSpec]) -> int:
        engine, registers = self._engine, self._registers
        engine.mem_map(BASE, self._library.memory_bytes)
        for address, data in self._library.segments:
            engine.mem_write(BASE + address, data)
        engine.mem_map(_CALLS, PAGE * (1 + len(self._called) * 4 // PAGE))
        for index, call in enumerate(self._called):
            for place in self._library.calls[call]:
                engine.mem_write(BASE + place, struct.pack("<Q", _CALLS + 4 * index))
        engine.mem_map(_RETURN, PAGE)
        engine.mem_map(_STACK - _STACK_BYTES, _STACK_BYTES)
        total = self._watch()
        engine.reg_write(registers.UC_ARM64_REG_CPACR_EL1, 3 << 20)
        engine.reg_write(registers.UC_ARM64_REG_SP, _STACK - 1024)
        engine.reg_write(registers.UC_ARM64_REG_LR, _RETURN)
        given = self._place(arguments)
        values = (0, given, len(arguments), self._reserve(16))
        for register, value in zip(self._parameters, values, strict=True):
            engine.reg_write(register, value)
        try:
            engine.emu_start(BASE + self._library.function(self._kernel), _RETURN)
        except self._unicorn.UcError as error:
            raise EngineError(f"kernel {self._kernel} cannot be counted: {error}") from error
        code = engine.reg_read(registers.UC_ARM64_REG_X0) & 0xFFFF_FFFF
        if self._failure or code:
            raise EngineError(f"kernel {self._kernel} cannot be counted: {self._failure or 'it fails'}")
        # What stands for the runtime's own functions is one instruction each, which is none of the kernel's.
        return int(total.value)

    @property
    def _parameters(self) -> tuple[int, int, int, int]:
        names = self._registers
        return (
            names.UC_ARM64_REG_X0,
            names.UC_ARM64_REG_X1,
            names.UC_ARM64_REG_X2,
            names.UC_ARM64_REG_X3,
        )

    def _watch(self) -> ctypes.c_uint64:
        """Have every block of the library counted, and calls that leave it answered."""
        from unicorn.unicorn_py3.unicorn import uclib

        total = ctypes.c_uint64(0)
        hook = ctypes.CDLL(str(_hook_library())).count_block
        # Kept for as long as the engine: Unicorn knows addresses only.
        self._hook = hook, ctypes.c_size_t()
        status = uclib.uc_hook_add(
            self._engine._uch,
            ctypes.byref(self._hook[1]),
            self._unicorn.UC_HOOK_BLOCK,
            ctypes.cast(hook, ctypes.c_void_p),
            ctypes.cast(ctypes.byref(total), ctypes.c_void_p),
            ctypes.c_uint64(BASE),
            ctypes.c_uint64(BASE + self._library.memory_bytes),
        )
        if status:
            raise EngineError(f"Unicorn refuses to count: {self._unicorn.UcError(status)}")
        end = _CALLS + 4 * max(1, len(self._called))
        self._engine.hook_add(self._unicorn.UC_HOOK_CODE, self._answer, None, _CALLS, end)
        return total

    def _answer(self, engine: Any, address: int, size: int, data: object) -> None:
        """Do what a function outside of the library would do, and go back to its caller."""
        call = self._called[(address - _CALLS) // 4]
        first, second, third = (int(engine.reg_read(register)) for register in self._parameters[:3])
        names = self._registers
        back = engine.reg_read(names.UC_ARM64_REG_LR)
        if call == "TVMBackendAllocWorkspace":
            engine.reg_write(names.UC_ARM64_REG_X0, self._reserve(third))
        elif call == "TVMBackendFreeWorkspace":
            engine.reg_write(names.UC_ARM64_REG_X0, 0)
        elif call == "TVMBackendParallelLaunch":
            # One task does all of the work, and returns to who launched it.
            group = self._reserve(16)
            engine.mem_write(group, struct.pack("<Qi", 0, 1))
            for register, value in zip(self._parameters[:3], (0, group, second), strict=True):
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
        engine.reg_write(names.UC_ARM64_REG_PC, back)

    def _reserve(self, count: int) -> int:
        address = self._heap
        self._heap += (max(count, 1) + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
        if self._heap > self._heap_end:
            more = (self._heap - self._heap_end + PAGE - 1) // PAGE * PAGE
            self._engine.mem_map(self._heap_end, more)
            self._heap_end += more
        return address

    def _place(self, arguments: Sequence[ArgumentSpec]) -> int:
        """Tensors of zeros as packed arguments (dlpack.h, tvm/ffi/c_api.h); the address of the first."""
        packed = b""
        for shape, dtype in arguments:
            kind = np.dtype(dtype)
            count = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
            sizes = self._reserve(8 * max(1, len(shape)))
            self._engine.mem_write(sizes, struct.pack(f"<{len(shape)}q", *shape))
            tensor = self._reserve(48)
            code = _CODES["b" if dtype == "bool" else kind.kind]
            fields = (self._reserve(count), _CPU, 0, len(shape), code, 8 * kind.itemsize, 1, sizes, 0, 0)
            self._engine.mem_write(tensor, struct.pack("<QiiiBBHQQQ", *fields))
            packed += struct.pack("<iiQ", _TENSOR_POINTER, 0, tensor)
        address = self._reserve(len(packed))
        self._engine.mem_write(address, packed)
        return address


def _hook_library() -> Path:
    """The hook as a library of this machine: in Python it would take longer than all that is counted."""
    path = cache_root() / "emulation" / f"count-{hashlib.sha256(_HOOK.encode()).hexdigest()[:16]}.so"
    if is_sealed(path):
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".making-") as scratch:
        source, made = Path(scratch) / "count.c", Path(scratch) / "count.so"
        source.write_text(_HOOK)
        command = [sys.executable, "-m", "ziglang", "cc", "-shared", "-fPIC", "-O2", "-o", str(made)]
        done = subprocess.run([*command, str(source)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise EngineError(f"the counter cannot be compiled: {' '.join(done.stderr.split())[:300]}")
        seal(made, path)
    return path
