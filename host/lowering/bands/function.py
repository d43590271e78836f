"""A chain as one unscheduled function: a loop over bands around the functions of its parts.

Every part keeps the blocks of its own function, inside of a block that gives it its rows. So a rule schedules
a part as if it were a function of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import s_tir, te, tirx

from host.lowering.bands.chain import Argument, Before, Chain, Made, Part, Read, Scalar
from host.lowering.expressions.stage import Stage
from host.lowering.graph import Node, Value
from host.tensor_ir.bands import BANDS, PART, part_name
from host.tensor_ir.structural import mapped


@dataclass(frozen=True, eq=False)
class _Written:
    """The function of a part, with what stands for its arguments.

    Attributes:
        function: for one band; its last argument is the result.
        arguments: of the chain by parameter of the function, or the result of the part before.
    """

    function: tirx.PrimFunc
    arguments: tuple[Argument | Before, ...]


def chain_function(node: Node) -> tirx.PrimFunc:
    """The function of a "chain" node; its arguments are the node's inputs and then its output."""
    chain: Chain = node.attrs["chain"]
    outside = [
        tirx.decl_buffer(value.shape, value.dtype, f"a{number}") for number, value in enumerate(node.inputs)
    ]
    result = tirx.decl_buffer(chain.result, node.output.dtype, "result")
    band = tirx.Var("vb", "int32")
    between = [_between(chain, number) for number in range(len(chain.parts) - 1)]
    statements: list[Any] = []
    for number, part in enumerate(chain.parts):
        written = _written(part)
        regions = [_region(chain, number, one, outside, between, band) for one in written.arguments]
        last = number == len(chain.parts) - 1
        target = _rows(result, chain.bands.first(band), chain.bands.rows) if last else None
        regions.append(target or _made(chain, number, between, band))
        statements.append(_part_block(number, written.function, regions))
        if number == 0:
            statements += _edges(chain, between[0], band)
    loop = tirx.Var("band", "int32")
    extent = tvm.ir.Range(0, chain.bands.count)
    block = s_tir.SBlock(
        [tirx.IterVar(extent, band, tirx.IterVar.DataPar)],
        [_whole(buffer) for buffer in outside],
        [_rows(result, chain.bands.first(band), chain.bands.rows)],
        "band",
        tirx.SeqStmt(statements),
        alloc_buffers=between,
        annotations={BANDS: chain.bands.count},
    )
    body = tirx.For(loop, 0, chain.bands.count, tirx.ForKind.SERIAL, s_tir.SBlockRealize([loop], True, block))
    root = s_tir.SBlock([], [], [], "root", body)
    function = tirx.PrimFunc([*outside, result], s_tir.SBlockRealize([], True, root))
    return function.with_attr("tirx.noalias", True)


def _between(chain: Chain, number: int) -> Any:
    """The buffer of what a part makes for the next one, for one band."""
    _, rows, width, channels = chain.parts[number].shape
    rows = chain.bands.stored if number == 0 else rows
    return tirx.decl_buffer((1, rows, width, channels), "float32", f"between{number}")


def _made(chain: Chain, number: int, between: Sequence[Any], band: Any) -> Any:
    """Where a part that is not the last one writes a band."""
    bands = chain.bands
    if number:
        return _whole(between[number])
    return _rows(between[0], bands.place(band), bands.read)


def _region(
    chain: Chain, number: int, argument: Argument | Before, outside: Sequence[Any], between: Any, band: Any
) -> Any:
    """What a part reads for a band."""
    bands = chain.bands
    if isinstance(argument, Before):
        return _rows(between[0], bands.over, bands.read) if number == 1 else _whole(between[number - 1])
    buffer = outside[argument.number]
    if not argument.rows:
        return _whole(buffer)
    first = bands.start(band) if number == 0 else bands.first(band)
    return _rows(buffer, first, argument.shape[1])


def _whole(buffer: Any) -> Any:
    return tirx.BufferRegion(buffer, [tvm.ir.Range(0, extent) for extent in buffer.shape])


def _rows(buffer: Any, first: Any, count: int) -> Any:
    whole = [tvm.ir.Range(0, extent) for extent in buffer.shape]
    whole[1] = tvm.ir.Range.from_min_extent(first, count)
    return tirx.BufferRegion(buffer, whole)


def _edges(chain: Chain, buffer: Any, band: Any) -> list[Any]:
    """Zeros where the first band reads before the image, and the last one behind it."""
    found = []
    for zeros in chain.bands.zeros:
        row, column, channel = (tirx.Var(axis, "int32") for axis in ("r", "w", "c"))
        _, _, width, channels = buffer.shape
        fill: Any = tirx.BufferStore(
            buffer, tirx.const(0.0, "float32"), [0, row + zeros.first, column, channel]
        )
        for variable, extent in ((channel, channels), (column, width), (row, zeros.count)):
            fill = tirx.For(variable, 0, extent, tirx.ForKind.SERIAL, fill)
        body = tirx.IfThenElse(tirx.EQ(band, tirx.IntImm("int32", zeros.band)), fill, None)
        block = s_tir.SBlock([], [], [_rows(buffer, zeros.first, zeros.count)], f"zeros_{zeros.name}", body)
        found.append(s_tir.SBlockRealize([], True, block))
    return found


def _part_block(number: int, function: tirx.PrimFunc, regions: Sequence[Any]) -> Any:
    """The body of a part's function, on its rows of the chain's buffers."""
    root = function.body.block
    views = [
        tirx.decl_buffer(
            one.shape,
            one.dtype,
            f"{part_name(number)}_{one.name}",
            elem_offset=tirx.Var(f"{part_name(number)}_{one.name}_at", "int32"),
            offset_factor=1,
        )
        for one in function.params
    ]
    replaced = list(zip(function.params, views, strict=True))

    def view(found: Any) -> Any:
        return next((new for old, new in replaced if found.same_as(old)), found)

    def named(block: s_tir.SBlock) -> s_tir.SBlock:
        return s_tir.SBlock(
            block.iter_vars,
            block.reads,
            block.writes,
            f"{part_name(number)}_{block.name_hint}",
            block.body,
            block.init,
            block.alloc_buffers,
            block.match_buffers,
            block.annotations,
        )

    body = mapped(root.body, (tvm.ir.Var, view), (s_tir.SBlock, named))
    block = s_tir.SBlock(
        [],
        list(regions[:-1]),
        [regions[-1]],
        part_name(number),
        body,
        alloc_buffers=root.alloc_buffers,
        match_buffers=[
            s_tir.MatchBufferRegion(view, region) for view, region in zip(views, regions, strict=True)
        ],
        annotations={PART: number},
    )
    return s_tir.SBlockRealize([], True, block)


def _written(part: Part) -> _Written:
    """The function of a part for one band, as for any group of nodes."""
    stage = Stage()
    before = Value(part.before, "float32")
    made: list[Value] = []
    known: dict[Read, Value] = {}

    def value(read: Read) -> Value:
        if isinstance(read, Made):
            return made[read.step]
        if isinstance(read, Before):
            return before
        if read not in known:
            known[read] = _value(read)
        return known[read]

    nodes = []
    for step in part.steps:
        node = Node(step.spec, tuple(value(read) for read in step.reads), dict(step.attrs))
        node.outputs = (Value(step.shape, step.dtype, producer=node),)
        made.append(node.output)
        nodes.append(node)
    for node in nodes:
        assert node.spec.write is not None, "a chain has operations with a tensor expression only"
        node.spec.write(stage, node)
        reads = sum(reader.inputs.count(node.output) for reader in nodes)
        if node.spec.is_elementwise and node is not nodes[-1] and reads > 1:
            stage.share(node.output)
    # A product alone is copied: it lies in registers, where the rows of a chain's buffer cannot lie.
    result = stage.compute(made[-1].shape, lambda indices: stage.element(made[-1], indices), "epilogue")
    function = te.create_prim_func([*stage.arguments.values(), result])
    origin: dict[Value, Argument | Before] = {
        found: read for read, found in known.items() if isinstance(read, Argument)
    }
    origin[before] = Before()
    return _Written(function, tuple(origin[one] for one in stage.arguments))


def _value(read: Argument | Scalar) -> Value:
    if isinstance(read, Scalar):
        return Value(read.shape, read.dtype, np.full(read.shape, read.number, read.dtype))
    return Value(read.shape, read.dtype)
