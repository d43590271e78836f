"""Regions that blocks read, where an index depends on what a name within the block stands for.

TVM's own search writes the name into the region, outside of the expression that gives it its value: a table
whose index is named then has no schedule, and its function does not compile.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from host.tensor_ir.structural import mapped


def with_whole_reads(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The same function with such tensors read whole."""
    names: list[Any] = []
    tvm_ffi.structural_walk(function.body, ((tirx.Let, lambda one: names.append(one.var)),), order="post")
    if not names:
        return function
    changed: list[s_tir.SBlock] = []

    def widened(block: s_tir.SBlock) -> s_tir.SBlock:
        reads = [_whole(region) if _depends(region, names) else region for region in block.reads]
        if all(new.same_as(old) for new, old in zip(reads, block.reads, strict=True)):
            return block
        changed.append(block)
        return s_tir.SBlock(
            block.iter_vars,
            reads,
            block.writes,
            block.name_hint,
            block.body,
            block.init,
            block.alloc_buffers,
            block.match_buffers,
            block.annotations,
        )

    body = mapped(function.body, (s_tir.SBlock, widened))
    return function.with_body(body) if changed else function


def _depends(region: tirx.BufferRegion, names: list[Any]) -> bool:
    used = [one for part in region.region for end in (part.min, part.extent) for one in _variables(end)]
    return any(one.same_as(name) for one in used for name in names)


def _variables(expression: Any) -> list[Any]:
    return list(tirx.analysis.undefined_vars(expression))


def _whole(region: tirx.BufferRegion) -> tirx.BufferRegion:
    return tirx.BufferRegion(region.source, [tvm.ir.Range(0, extent) for extent in region.source.shape])
