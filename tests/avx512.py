"""Kernels that LLVM has vectorised for AVX-512, on x86-64 machines that need not have it.

How LLVM transforms a loop depends on the processor that it compiles for; what it makes of the loop is told in
vectors of any length, which every processor can carry out.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import tvm

from host.build import kernel
from host.build.memory.workspace import Workspace, workspace_of
from host.errors import BuildError

# Of x86-64-v4, as `targets` names them for LLVM, and what the code is written for in the end.
_LEVEL, _LOWER = "x86-64-v4", "x86-64-v3"
_CPU = Path("/proc/cpuinfo")
HAS_AVX2 = _CPU.exists() and " avx2" in _CPU.read_text(encoding="utf-8")
_FEATURES = re.compile(r'"target-features"="[^"]*"')


@contextmanager
def carried_out_in_shorter_vectors() -> Iterator[None]:
    """Kernels for AVX-512 that are built meanwhile need AVX2 alone.

    One that calls an instruction of AVX-512 by its name does not compile.
    """
    with (
        mock.patch.object(kernel, "_compiled", _compiled),
        mock.patch.object(kernel, "BUILD_VERSION", f"{kernel.BUILD_VERSION} in shorter vectors"),
    ):
        yield


def _compiled(
    function: tvm.tirx.PrimFunc, symbol: str, target: tvm.target.Target
) -> tuple[bytes, Workspace | None]:
    try:
        lowered = kernel.lower_function(function, symbol, target)
        text = str(tvm.get_global_func("target.build.llvm")(lowered, target).inspect_source("ll"))
        with tempfile.TemporaryDirectory() as folder:
            source, made = Path(folder, "kernel.ll"), Path(folder, "kernel.o")
            lower = _FEATURES.sub('"target-features"=""', text).replace(_LEVEL, _LOWER)
            source.write_text(lower.replace("-prefer-256-bit", ""))
            tvm.runtime.load_module(str(source)).write_to_file(str(made))
            return made.read_bytes(), workspace_of(lowered)
    except (TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise BuildError(kernel.first_line(error)) from error
