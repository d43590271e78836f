"""A processor with registers of matrices, and programs for it run where this machine has them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import tirx

from device_agent.board.matrix_tiles import may_use_tiles
from host.build import target_for
from host.build.kernel import compile_function, lower_function
from host.build.linker import link_shared
from targets import Board, MachineDescription, board_for

_FEATURES = (
    *("avx2", "fma", "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512_vnni"),
    *("avx512_bf16", "amx_tile", "amx_int8", "amx_bf16"),
)
_CPU = Path("/proc/cpuinfo")


def board(cores: int = 1, without: tuple[str, ...] = (), restrict: str = "") -> Board:
    """An x86-64 board with AMX."""
    features = tuple(name for name in _FEATURES if name not in without)
    caches = {"L1": 48 << 10, "L2": 2 << 20, "L3": 64 << 20}
    described = MachineDescription(
        "x86_64", "Intel(R) Xeon(R) Processor", cores, features, caches, 2.6e9, 8 << 30
    )
    found = board_for(described, restrict)
    assert found is not None
    return found


def runs_here() -> bool:
    """Whether this machine has the registers, and Linux gives them to this process."""
    return _CPU.exists() and " amx_int8" in _CPU.read_text(encoding="utf-8") and may_use_tiles()


def library(function: tirx.PrimFunc, folder: Path) -> Path:
    """A compiled function as a shared library."""
    object_file, made = folder / "kernel.o", folder / "kernel.so"
    object_file.write_bytes(compile_function(function, "kernel", target_for(board())))
    link_shared([object_file], made, "x86_64")
    return made


def run(function: tirx.PrimFunc, arguments: list[np.ndarray]) -> np.ndarray | None:
    """The output, of which the last argument has the shape; None where this machine lacks the registers."""
    with tempfile.TemporaryDirectory() as folder:
        made = library(function, Path(folder))
        if not runs_here():
            return None
        tensors = [tvm.runtime.tensor(one) for one in arguments]
        tvm.runtime.load_module(str(made))["kernel"](*tensors)
    found: np.ndarray = tensors[-1].numpy()
    return found


def callable_here(function: tirx.PrimFunc) -> Any:
    """A compiled function to call; the test is skipped where this machine lacks the registers."""
    with tempfile.TemporaryDirectory() as folder:
        made = library(function, Path(folder))
        skip_where_nothing_ran(int(runs_here()))
        return tvm.runtime.load_module(str(made))["kernel"]


def skip_where_nothing_ran(ran: int) -> None:
    """Says why a test that compiled its programs ran none of them."""
    if not ran:
        pytest.skip("this machine has no AMX, or Linux refuses it: programs are compiled and not run")


def assembly(function: tirx.PrimFunc) -> str:
    """What the compiler makes of a program."""
    target = target_for(board())
    module = tvm.get_global_func("target.build.llvm")(lower_function(function, "kernel", target), target)
    return str(module.inspect_source("s"))
