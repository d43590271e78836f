"""Instructions of a kernel for RISC-V with vectors, counted exactly: qemu's user mode says which it runs.

Unicorn, which counts those of aarch64, knows no vectors of RISC-V. What the kernel calls is not counted.
"""

from __future__ import annotations

import contextlib
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.llm.instructions.registers import Registers
from host.emulation.kernel_run import ArgumentSpec
from host.emulation.library import BASE, SharedLibrary
from host.emulation.tools import tool
from host.errors import BuildError, EngineError

_RUNNER = Path(__file__).with_name("runner.c")
_DATA, _ALIGNMENT = 0x2_0000_0000, 64
_CODES = {"i": 0, "u": 1, "f": 2}
_TENSOR_POINTER, _CPU = 7, 1
# Of an argument, its tensor and its shape, at most.
_HEADER_BYTES = 256
# As in the runner's `functions`; any other function ends it.
_FUNCTIONS = (
    "TVMBackendAllocWorkspace",
    "TVMBackendFreeWorkspace",
    "TVMBackendParallelLaunch",
    "memset",
    "memcpy",
    "memmove",
)
_LIMIT_S = 600


@dataclass(frozen=True)
class Counted:
    """What one call of a kernel executes.

    Attributes:
        instructions: all of them.
        registers: those that its instructions of vectors work on; an instruction may take several.
    """

    instructions: int
    registers: int


def runner(folder: Path) -> Path:
    """The program that calls kernels.

    Raises:
        BuildError: it does not compile.
    """
    made = folder / "runner"
    command = [
        sys.executable,
        "-m",
        "ziglang",
        "cc",
        "-target",
        "riscv64-freestanding-none",
        "-O1",
        "-nostdlib",
    ]
    command += ["-static", "-fno-stack-protector", "-fno-builtin", "-mcmodel=medium", "-Wl,-e,_start", "-w"]
    done = subprocess.run(
        [*command, "-o", str(made), str(_RUNNER)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BuildError(f"the runner does not compile: {' '.join(done.stderr.split())[:300]}")
    return made


def count_traced(
    program: Path, content: bytes, name: str, arguments: Sequence[ArgumentSpec], vector_bits: int
) -> Counted:
    """What one call of a kernel with zeros executes.

    Args:
        program: of `runner`.
        content: of a shared library for riscv64.
        name: of the function.
        arguments: shape and dtype of each.
        vector_bits: length of the emulated registers.

    Raises:
        UserError: qemu is not installed.
        EngineError: the kernel fails, calls something that is not known here, or has an instruction that the
            emulator or the count does not know.
    """
    library = SharedLibrary(content)
    processor = f"rv64,v=true,vlen={vector_bits},Zfh=true"
    command = [str(tool("qemu-riscv64-static")), "-cpu", processor, "-singlestep"]
    command += ["-d", "exec,nochain", "-dfilter", f"{BASE:#x}+{library.memory_bytes:#x}", str(program)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as run:
        assert run.stdin is not None and run.stderr is not None
        # What ends before it has read all says why below.
        with contextlib.suppress(BrokenPipeError):
            run.stdin.write(_stream(library, name, arguments))
            run.stdin.close()
        registers, executed, other = Registers(library.segments[0][1], BASE), 0, b""
        for line in run.stderr:
            # Trace 0: HOST [CS/PC/FLAGS/FLAGS]
            fields = line.split(b"/", 2)
            if len(fields) < 3 or not line.startswith(b"Trace "):
                other = line
                continue
            executed += 1
            registers.executed(int(fields[1], 16))
        code = run.wait(_LIMIT_S)
    if code:
        reason = " ".join(other.decode(errors="replace").split())[:200]
        raise EngineError(f"kernel {name} cannot be run: the emulated program ended with {code}. {reason}")
    return Counted(executed, registers.total)


def _stream(library: SharedLibrary, name: str, arguments: Sequence[ArgumentSpec]) -> bytes:
    """What the runner reads."""
    packed, headers = bytearray(), bytearray()
    tensors, at = _DATA + 16 * len(arguments), _DATA + _HEADER_BYTES * len(arguments)
    for number, (shape, dtype) in enumerate(arguments):
        kind = np.dtype(dtype)
        tensor = tensors + number * (48 + 64)
        packed += struct.pack("<iiQ", _TENSOR_POINTER, 0, tensor)
        code = _CODES[kind.kind]
        headers += struct.pack(
            "<QiiiBBHQQQ", at, _CPU, 0, len(shape), code, 8 * kind.itemsize, 1, tensor + 48, 0, 0
        )
        headers += struct.pack("<8q", *shape, *[0] * (8 - len(shape)))
        count = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        at += (count + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
    written = bytes(packed + headers)
    known = {one: number for number, one in enumerate(_FUNCTIONS)}
    patches = [
        (BASE + place, known.get(call, len(_FUNCTIONS)))
        for call, all_ in library.calls.items()
        for place in all_
    ]
    image = library.segments[0][1]
    size = (at - _DATA + 4095) // 4096 * 4096
    entry = BASE + library.function(name)
    given = (BASE, len(image), _DATA, size, len(written), entry, _DATA, len(arguments), len(patches))
    return (
        struct.pack("<9q", *given) + b"".join(struct.pack("<2q", *one) for one in patches) + image + written
    )
