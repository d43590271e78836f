"""Scratch memory of compiled kernels, which the runtime's threads take from their pools."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi

_ALLOCATION = "tirx.TVMBackendAllocWorkspace"
# Which argument of the call is the size.
_SIZE = 2
# Workspaces are whole pages (kWorkspacePageSize of TVM's runtime).
_PAGE_BYTES = 4096


@dataclass(frozen=True)
class Workspace:
    """Scratch memory of a kernel, at most.

    Attributes:
        shared_bytes: of the thread that calls the kernel.
        thread_bytes: of each thread that computes a part of a parallel loop.
    """

    shared_bytes: int = 0
    thread_bytes: int = 0


def workspace_of(lowered: tvm.IRModule) -> Workspace | None:
    """The workspaces that the functions of a module take, those of one function one beside the other.

    None where one depends on the length of an input.

    Args:
        lowered: what goes to the code generator: allocations are calls of the runtime, and parallel loops
            are still loops.
    """
    found = []
    for function in lowered.functions.values():
        whole = _allocated(function.body)
        if whole == 0:
            found.append(Workspace())
            continue
        loops = [_allocated(loop.body) for loop in _parallel_loops(function.body)]
        if whole is None or None in loops:
            return None
        known = [size for size in loops if size is not None]
        found.append(Workspace(whole - sum(known), max(known, default=0)))
    return largest(found)


def largest(workspaces: Iterable[Workspace | None]) -> Workspace | None:
    """The workspace that is large enough for each of several kernels in turn; None where one is not known."""
    found = Workspace()
    for one in workspaces:
        if one is None:
            return None
        found = Workspace(
            max(found.shared_bytes, one.shared_bytes), max(found.thread_bytes, one.thread_bytes)
        )
    return found


def _parallel_loops(body: Any) -> list[tvm.tirx.For]:
    """The loops over threads; there are none inside one another."""
    loops: list[tvm.tirx.For] = []

    def visit(loop: tvm.tirx.For) -> None:
        if loop.kind == tvm.tirx.ForKind.PARALLEL:
            loops.append(loop)

    tvm_ffi.structural_walk(body, (tvm.tirx.For, visit), order="post")
    return loops


def _allocated(body: Any) -> int | None:
    sizes: list[Any] = []

    def visit(call: tvm.ir.Call) -> None:
        if getattr(call.op, "name", "") == _ALLOCATION:
            sizes.append(call.args[_SIZE])

    tvm_ffi.structural_walk(body, (tvm.ir.Call, visit), order="post")
    if not all(isinstance(size, tvm.tirx.IntImm) for size in sizes):
        return None
    return sum(-(-int(size) // _PAGE_BYTES) * _PAGE_BYTES for size in sizes)
