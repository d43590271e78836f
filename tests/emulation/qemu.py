"""Kernels of another architecture in a static executable of ours, run by qemu's user mode.

Right or wrong is all that can be learned there: the time that it takes says nothing of a board.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tvm

from benchmarks.llm import instructions
from host.build import KernelCache, compile_kernel, target_for
from targets import Board

RUNNER = Path(__file__).with_name("runner.c")
# Headers that it shares with the runner that counts instructions.
_HEADERS = Path(instructions.__file__).parent
_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
_TRIPLES = {"aarch64": "aarch64-freestanding-none", "riscv64": "riscv64-freestanding-none"}


@dataclass(frozen=True)
class Call:
    """One call: inputs and zeroed outputs in the function's order."""

    kernel: str
    arguments: tuple[np.ndarray, ...]


def emulator(architecture: str) -> str:
    """The emulator's path; an error that says how to get it where it is missing."""
    name = f"qemu-{architecture}-static"
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"{name} is not installed: run scripts/system-packages")
    return found


def executable(
    board: Board, functions: Mapping[str, tvm.tirx.PrimFunc], folder: Path, cache: KernelCache | None = None
) -> Path:
    """Compile scheduled functions for a board, or take them from a cache, and link them with the runner."""
    target = target_for(board)
    folder.mkdir(parents=True, exist_ok=True)
    symbols, objects = [], []
    for name, function in functions.items():
        kernel = compile_kernel(function, name, target, cache)
        path = folder / f"{kernel.symbol}.o"
        path.write_bytes(kernel.content)
        symbols.append(f"__tvm_ffi_{kernel.symbol}")
        if path not in objects:
            objects.append(path)
    table = folder / "table.c"
    lines = ["typedef int (*Kernel)(void *, const void *, int, void *);"]
    lines += [f"extern int {symbol}(void *, const void *, int, void *);" for symbol in sorted(set(symbols))]
    lines += ["Kernel kernels[] = {", *(f"  {symbol}," for symbol in symbols), "};"]
    table.write_text("\n".join(lines) + "\n")
    output = folder / "kernels"
    command = [sys.executable, "-m", "ziglang", "cc", "-target", _TRIPLES[board.architecture], "-O1"]
    command += ["-nostdlib", "-static", "-fno-stack-protector", "-fno-builtin", "-Wl,-e,_start"]
    command += [f"-I{_HEADERS}"]
    command += ["-mcmodel=medium"] if board.architecture == "riscv64" else []
    done = subprocess.run(
        [*command, "-o", str(output), str(RUNNER), str(table), *map(str, objects)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return output


def run(
    program: Path,
    names: Sequence[str],
    calls: Sequence[Call],
    architecture: str,
    cpu: str,
    limit_s: float = 120.0,
) -> list[list[np.ndarray]]:
    """The arguments of every call as they are after it.

    Args:
        program: of `executable`.
        names: kernels in the order in which they were given to it.
        calls: what to call.
        architecture: "aarch64" or "riscv64".
        cpu: qemu's name and options of the processor.
        limit_s: seconds after which it is ended.

    Raises:
        RuntimeError: the program ends with an error.
        subprocess.TimeoutExpired: it takes longer than `limit_s`.
    """
    done = subprocess.run(
        [emulator(architecture), "-cpu", cpu, str(program)],
        input=encoded(names, calls),
        capture_output=True,
        timeout=limit_s,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the emulated program ended with {done.returncode}: {done.stderr.decode()}")
    return decoded(done.stdout, calls)


def encoded(names: Sequence[str], calls: Sequence[Call]) -> bytes:
    """Calls as the runner reads them."""
    stream = [struct.pack("<q", len(calls))]
    for call in calls:
        stream.append(struct.pack("<qq", names.index(call.kernel), len(call.arguments)))
        for array in call.arguments:
            header = (array.ndim, *array.shape, _CODES[array.dtype.kind], 8 * array.itemsize, array.nbytes)
            stream += [struct.pack(f"<{len(header)}q", *header), array.tobytes()]
    return b"".join(stream)


def decoded(written: bytes, calls: Sequence[Call]) -> list[list[np.ndarray]]:
    """The arguments of every call, as the runner wrote them."""
    results, at = [], 0
    for call in calls:
        values = []
        for array in call.arguments:
            piece = written[at : at + array.nbytes]
            values.append(np.frombuffer(piece, array.dtype).reshape(array.shape))
            at += array.nbytes
        results.append(values)
    assert at == len(written)
    return results
