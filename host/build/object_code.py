"""The object code that LLVM makes of a module, as bytes."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import tvm


def object_code(module: tvm.runtime.Module) -> bytes:
    """The object file of a module of host code.

    LLVM ends the whole process if a file does not take what is written to it, as on a full disk. So it writes
    to memory, where the system has files in memory.

    Raises:
        OSError: there is no space for it.
        RuntimeError: TVM or LLVM refuses the module.
    """
    if not hasattr(os, "memfd_create"):
        with tempfile.TemporaryDirectory(prefix="edgetlm-") as folder:
            path = Path(folder) / "code.o"
            module.write_to_file(str(path))
            return path.read_bytes()
    descriptor = os.memfd_create("code.o")
    try:
        module.write_to_file(f"/proc/self/fd/{descriptor}", "o")
        with open(descriptor, "rb", closefd=False) as stream:
            return stream.read()
    finally:
        os.close(descriptor)
