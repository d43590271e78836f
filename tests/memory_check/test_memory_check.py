"""The check finds each kind of fault, and none in kernels that have none."""

from __future__ import annotations

import faulthandler
import os
import platform
import signal
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T

from host.build import build_kernel_library
from tests.memory_check.execution import GuardedLibrary, workspaces_on_the_heap
from tests.memory_check.guarded import Guarded

N = 40
TARGET = tvm.target.Target({"kind": "llvm", "mtriple": f"{platform.machine()}-linux-gnu"})


@T.prim_func(s_tir=True, private=True)
def right(x: T.Buffer((40,), "float32"), y: T.Buffer((40,), "float32")) -> None:
    between = T.sblock_alloc_buffer((40,), "float32")
    for i in range(40):
        with T.sblock("between"):
            vi = T.axis.spatial(40, i)
            between[vi] = x[vi] + T.float32(1)
    for i in range(40):
        with T.sblock("y"):
            vi = T.axis.spatial(40, i)
            y[vi] = between[39 - vi]


@T.prim_func(s_tir=True, private=True)
def leaves_a_result_unwritten(x: T.Buffer((40,), "float32"), y: T.Buffer((40,), "float32")) -> None:
    for i in range(39):
        with T.sblock("y"):
            vi = T.axis.spatial(39, i)
            y[vi] = x[vi]


@T.prim_func(s_tir=True, private=True)
def reads_a_workspace_unwritten(x: T.Buffer((40,), "float32"), y: T.Buffer((40,), "float32")) -> None:
    between = T.sblock_alloc_buffer((40,), "float32")
    for i in range(37):
        with T.sblock("between"):
            vi = T.axis.spatial(37, i)
            between[vi] = x[vi]
    for i in range(40):
        with T.sblock("y"):
            vi = T.axis.spatial(40, i)
            y[vi] = between[39 - vi]


@T.prim_func(s_tir=True, private=True)
def writes_its_input(x: T.Buffer((40,), "float32"), y: T.Buffer((40,), "float32")) -> None:
    for i in range(40):
        with T.sblock("y"):
            vi = T.axis.spatial(40, i)
            y[vi] = x[vi]
    for i in range(40):
        with T.sblock("x"):
            vi = T.axis.spatial(40, i)
            x[vi] = T.float32(3)


@T.prim_func(s_tir=True, private=True)
def reads_behind_its_input(x: T.Buffer((40,), "float32"), y: T.Buffer((40,), "float32")) -> None:
    for i in range(40):
        with T.sblock("y"):
            vi = T.axis.spatial(40, i)
            y[vi] = x[vi + 1]


@T.prim_func(s_tir=True, private=True)
def reads_before_its_input(x: T.Buffer((40,), "float32"), y: T.Buffer((40,), "float32")) -> None:
    for i in range(40):
        with T.sblock("y"):
            vi = T.axis.spatial(40, i)
            y[vi] = x[vi - 1]


@T.prim_func(s_tir=True, private=True)
def writes_behind_its_result(x: T.Buffer((40,), "float32"), y: T.Buffer((40,), "float32")) -> None:
    for i in range(41):
        with T.sblock("y"):
            vi = T.axis.spatial(41, i)
            y[vi] = T.float32(0)


def checked(function: tvm.tirx.PrimFunc, folder: Path) -> tuple[list[str], np.ndarray]:
    with workspaces_on_the_heap():
        path = build_kernel_library({"kernel": function}, folder / "kernel.so", TARGET)
    library = GuardedLibrary(path)
    x, y = (tvm.runtime.tensor(np.arange(N, dtype=np.float32)) for _ in "xy")
    return library.call(library.module["kernel"], [x, y], 1), y.numpy()


def test_a_right_kernel_has_no_fault(tmp_path: Path) -> None:
    faults, y = checked(right, tmp_path)
    assert faults == []
    np.testing.assert_array_equal(y, np.arange(N, 0, -1))


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        (leaves_a_result_unwritten, "result 0 depends on memory that was never written, from element 39 on"),
        (reads_a_workspace_unwritten, "result 0 depends on memory that was never written, from element 0 on"),
        (writes_its_input, "writes to argument 0"),
    ],
    ids=["result", "workspace", "input"],
)
def test_a_fault_is_named(function: tvm.tirx.PrimFunc, fault: str, tmp_path: Path) -> None:
    assert checked(function, tmp_path)[0] == [fault]


@pytest.mark.parametrize(
    "function",
    [reads_behind_its_input, reads_before_its_input, writes_behind_its_result],
    ids=["behind", "before", "result"],
)
def test_what_is_not_its_own_ends_the_process(function: tvm.tirx.PrimFunc, tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        faulthandler.disable()
        checked(function, tmp_path)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGSEGV


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("size", [0, 1, 100, 4096, 4097, 5000])
def test_what_changes_beside_a_buffer_is_noticed(size: int, at_end: bool) -> None:
    with Guarded(size, 0xFE, at_end, alignment=64) as buffer:
        assert buffer.content.size == size and (buffer.content == 0xFE).all()
        assert buffer.address % 64 == 0 and buffer.overwritten() == ""
        buffer.content[:] = 0
        assert buffer.overwritten() == ""
        for part, where in zip(buffer.around, ("before", "behind"), strict=True):
            if part.size:
                part[-1] = 0
                assert buffer.overwritten() == where
                part[-1] = 0xFE
