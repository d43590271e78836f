"""The instructions of cubins, as NVIDIA's disassembler reads them."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from host.build.cuda.nvrtc import package_folders
from host.errors import UserError

# Multiply-adds of one thread of a warp, by the beginning of the opcode. A warp's product of 16x8x16 takes
# 2048, 64 for each thread (PTX ISA, `mma`); packed halves are two.
_MULTIPLY_ADDS = {
    "HMMA.16816": 64,
    "HMMA.1688": 32,
    "IMMA.16832": 128,
    "IMMA.16816": 64,
    "HFMA2": 2,
    "FFMA": 1,
    "DFMA": 1,
}
# Accesses of memory (not of shared memory), and bytes by the modifier of their opcode; without one, four.
_OF_MEMORY = ("LDG", "STG")
_BYTES = {"U8": "1", "S8": "1", "U16": "2", "S16": "2", "64": "8", "128": "16"}
TENSOR_CORES = ("HMMA", "IMMA")
_TIME_LIMIT_S = 120


def disassembler() -> Path:
    """NVIDIA's `nvdisasm` out of its package.

    Raises:
        UserError: the package is not installed.
    """
    for folder in package_folders():
        path = folder / "cu13" / "bin" / "nvdisasm"
        if path.is_file():
            return path
    raise UserError("nvdisasm is missing: install the package nvidia-cuda-nvdisasm (requirements/tests.txt)")


def opcodes_of(cubin: bytes) -> dict[str, Counter[str]]:
    """How often each opcode stands in the code of each function.

    Args:
        cubin: for sm_75 or later.

    Raises:
        UserError: there is no disassembler, or it does not read the cubin.
    """
    with tempfile.TemporaryDirectory(prefix="edgetlm-") as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        done = subprocess.run(
            [str(disassembler()), "-json", str(path)],
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIME_LIMIT_S,
        )
    try:
        _, functions = json.loads(done.stdout)
    except ValueError as error:
        reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise UserError(f"nvdisasm does not read this cubin: {reason}") from error
    return {
        function["function-name"]: Counter(
            instruction["opcode"] for instruction in function["sass-instructions"]
        )
        for function in functions
    }


def multiply_adds(opcodes: Mapping[str, int]) -> dict[str, int]:
    """Multiply-adds of one thread in the code of a function, each instruction counted once.

    Returns:
        "tensor" for those of tensor cores, "plain" for the others.

    Raises:
        UserError: an instruction of tensor cores is not known.
    """
    found = {"tensor": 0, "plain": 0}
    for opcode, count in opcodes.items():
        each = next((n for start, n in _MULTIPLY_ADDS.items() if opcode.startswith(start)), 0)
        on_tensor_cores = opcode.startswith(TENSOR_CORES)
        if on_tensor_cores and not each:
            raise UserError(f"benchmarks/gpu/machine_code.py does not know how much {opcode} computes")
        found["tensor" if on_tensor_cores else "plain"] += each * count
    return found


def widths(opcodes: Mapping[str, int]) -> dict[str, int]:
    """Loads from memory and stores to it in the code of a function, by the bytes that a thread moves."""
    found: Counter[str] = Counter()
    for opcode, count in opcodes.items():
        name, *modifiers = opcode.split(".")
        if name in _OF_MEMORY:
            found[next((_BYTES[part] for part in modifiers if part in _BYTES), "4")] += count
    return dict(sorted(found.items(), key=lambda entry: int(entry[0])))
