"""The first elements of rows in order and their places, as TopK and sorts; attributes `largest`, `results`.

The input is (R, N), and every output (R, K): "values" of its type, and "places" of an integer type, in the
order of `results`. Equal elements, -0 and 0 among them, stay in the order of their places. NaN counts as
the largest number, as in PyTorch and NumPy: ONNX Runtime does not order it.

An element is compared by its rank, an integer that is the lower the earlier the element comes. A row is
read in blocks: one without a rank up to `bound` is passed over after one comparison in vectors. What is
not passed over is inserted among K sorted ones where K is small. Otherwise it is collected until there
are more than twice K (`_prune`): these are sorted by digits, and the first K stay. The time is bounded by
that of N insertions into K, or by N times the digits, in whatever order the elements come.
"""

from __future__ import annotations

from math import prod

import numpy as np
from tvm import tirx

from host.lowering.builder import Builder
from host.lowering.graph import Node, Value, constant, normalise_axis
from host.lowering.reader.call import OperatorCall
from host.lowering.script import buffer_text, function_of_script, step_text
from host.lowering.spec import OpSpec, Reader

OPERATION = "first_in_order"
VALUES, PLACES = "values", "places"
# Elements of a block: whole vectors of any processor.
_BLOCK = 32
# Elements that are kept in order one by one, at most.
_MOST_INSERTED = 32
# What is collected before it is sorted, at least: a sort takes a pass over all values of a digit, too.
_LEAST_COLLECTED = 256
_DIGIT_BITS = 8
_DIGITS = 1 << _DIGIT_BITS
# Types of elements, the type of their ranks, and the bits of a rank that may differ.
_RANKS = {
    **dict.fromkeys(("bool", "int8", "uint8"), ("int32", 16)),
    **dict.fromkeys(("int16", "uint16"), ("int32", 24)),
    **dict.fromkeys(("int32", "float32", "float16", "bfloat16"), ("int32", 32)),
    **dict.fromkeys(("uint32", "int64", "uint64", "float64"), ("int64", 64)),
}
# Bits of infinity, which are below those of NaN.
_INFINITY = {"float32": 0x7F800000, "float64": 0x7FF0000000000000}


def _reader(results: tuple[str, ...], direction: str) -> Reader:
    """The reader of an operator with these results, whose attribute `direction` says what comes first."""

    def read(builder: Builder, call: OperatorCall) -> Value | tuple[Value, ...] | None:
        return _read(builder, call, results, bool(getattr(call.attrs, direction)))

    return read


def _read_topk(builder: Builder, call: OperatorCall) -> Value | tuple[Value, ...] | None:
    results = {"both": (VALUES, PLACES), "values": (VALUES,), "indices": (PLACES,)}
    return _read(builder, call, results[str(call.attrs.ret_type)], bool(call.attrs.largest))


def _read(
    builder: Builder, call: OperatorCall, results: tuple[str, ...], largest: bool
) -> Value | tuple[Value, ...] | None:
    """The axis is moved behind the others; results without elements are constants.

    A type without ranks and a single number are left to TVM.
    """
    data, shape = call.value(0), call.shape
    if not prod(shape):
        empty = tuple(constant(np.empty(size, dtype)) for size, dtype in call.outputs)
        return empty if len(empty) > 1 else empty[0]
    if data.dtype not in _RANKS or not shape:
        return None
    axis = normalise_axis(int(call.attrs.axis), len(shape))
    order = [other for other in range(len(shape)) if other != axis] + [axis]
    back = [order.index(position) for position in range(len(shape))]
    rows, count = prod(shape[other] for other in order[:-1]), shape[axis]
    moved = builder.reshape(builder.transpose(data, order), (rows, data.shape[axis]))
    types = [((rows, count), dtype) for _, dtype in call.outputs]
    made = builder.emit(OPERATION, [moved], {"largest": largest, "results": results}, types)
    placed = [builder.reshape(value, [shape[other] for other in order]) for value in made]
    found = tuple(builder.transpose(value, back) for value in placed)
    return found if len(found) > 1 else found[0]


def ordering_function(node: Node) -> tirx.PrimFunc:
    """The function of a "first_in_order" node; arguments are its input and then its outputs."""
    return function_of_script(_text(node))


def _text(node: Node) -> str:
    """TVMScript of the function: row by row, block by block."""
    data, (rows, size), count = node.inputs[0], node.inputs[0].shape, node.output.shape[1]
    kind, bits = _RANKS[data.dtype]
    blocks, inserted = -(-size // _BLOCK), count <= _MOST_INSERTED
    results = list(zip(node.attrs["results"], node.outputs, strict=True))
    room = count + 2 if inserted else 2 * _collected(count)
    scope = ', scope="local"' if inserted else ""
    first, at = "1" if inserted else f"side[0] * {_collected(count)}", f"b * {_BLOCK} + j"
    own = _rank(data.dtype, f"data[vr, {at}]", node.attrs["largest"])
    handled = _inserted(count, kind, at) if inserted else _appended(count, at)
    pruned = "" if inserted else _lines(16, _prune(count, kind, bits, blocks))
    return f"""
@T.prim_func(s_tir=True, private=True)
def function(data: {buffer_text(data)}, {", ".join(f"{n}: {buffer_text(v)}" for n, v in results)}) -> None:
    for r in range({rows}):
        with T.sblock("row"):
            vr = T.axis.spatial({rows}, r)
            {step_text(_operations(count, bits), "data")}
            T.reads(data[vr, 0:{size}])
            T.writes({", ".join(f"{name}[vr, 0:{count}]" for name, _ in results)})
            # Ranks and places of the elements that are held, how many are, and the rank up to which others
            # are of interest.
            rank = T.sblock_alloc_buffer(({room},), "{kind}"{scope})
            place = T.sblock_alloc_buffer(({room},), "int32"{scope})
            held = T.sblock_alloc_buffer((1,), "int32", scope="local")
            bound = T.sblock_alloc_buffer((1,), "{kind}", scope="local")
            found = T.sblock_alloc_buffer((1,), "int32", scope="local")
            own = T.sblock_alloc_buffer((1,), "{kind}", scope="local")
            at = T.sblock_alloc_buffer((1,), "int32", scope="local")
            side = T.sblock_alloc_buffer((1,), "int32", scope="local")
            start = T.sblock_alloc_buffer(({_DIGITS},), "int32", scope="local")
{_lines(12, _start(kind, inserted))}
            for b in range({blocks}):
                found[0] = 1
                if b * {_BLOCK} + {_BLOCK} <= {size}:
                    found[0] = 0
                    for j in range({_BLOCK}):
                        found[0] = T.bitwise_or(found[0], T.cast({own} <= bound[0], "int32"))
                if found[0] != 0:
                    for j in range(T.min({_BLOCK}, {size} - b * {_BLOCK})):
                        own[0] = {own}
                        if own[0] <= bound[0]:
{_lines(28, handled)}
{pruned}
            for k in range({count}):
                at[0] = place[{first} + k]
{_lines(16, [f"{name}[vr, k] = {_result(name, value)}" for name, value in results])}
"""


def _operations(count: int, bits: int) -> float:
    """About how many operations an element takes: of few that are wanted, most are passed over."""
    return 2.0 if count <= _MOST_INSERTED else 4.0 * bits / _DIGIT_BITS


def _start(kind: str, inserted: bool) -> list[str]:
    lines = ["held[0] = 0", "side[0] = 0", f"bound[0] = {_end(kind, True)}"]
    # In front of those that are held in order stands one that none goes before.
    return [*lines, f"rank[0] = {_end(kind, False)}"] if inserted else lines


def _result(name: str, value: Value) -> str:
    return "data[vr, at[0]]" if name == VALUES else f'T.cast(at[0], "{value.dtype}")'


def _end(kind: str, upper: bool) -> str:
    """Text of the largest or the smallest rank."""
    return f"T.{kind}({(tirx.max_value(kind) if upper else tirx.min_value(kind)).value})"


def _rank(dtype: str, value: str, largest: bool) -> str:
    """Text of the rank of an element: its number, or its bits, where no number is below -0 and 0 are one."""
    kind, _ = _RANKS[dtype]
    rank = f'T.cast({value}, "{kind}")'
    if dtype in _INFINITY:
        bits = f'T.reinterpret("{kind}", {value})'
        size = f"T.bitwise_and({bits}, {_end(kind, True)})"
        signed = f"T.Select({bits} >= T.{kind}(0), {size}, T.{kind}(0) - {size})"
        rank = f"T.Select({size} > T.{kind}({_INFINITY[dtype]}), {_end(kind, True)}, {signed})"
    elif dtype == kind:
        rank = value
    elif dtype == "uint64":
        # The order of unsigned numbers is that of signed ones with the other highest bit.
        rank = f"T.bitwise_xor({rank}, {_end(kind, False)})"
    return f"T.bitwise_not({rank})" if largest else rank


def _inserted(count: int, kind: str, at: str) -> list[str]:
    """Lines that put an element behind those of at most its rank; one behind the last is dropped."""
    return [
        "at[0] = held[0] + 1",
        "while rank[at[0] - 1] > own[0]:",
        "    rank[at[0]] = rank[at[0] - 1]",
        "    place[at[0]] = place[at[0] - 1]",
        "    at[0] = at[0] - 1",
        "rank[at[0]] = own[0]",
        f"place[at[0]] = {at}",
        f"held[0] = T.min(held[0] + 1, {count})",
        *_bounded(count, kind, f"rank[{count}]"),
    ]


def _bounded(count: int, kind: str, last: str) -> list[str]:
    """Lines that keep what is not before the last of `count` from being of interest.

    Where that is the smallest rank of all, its equals are looked at, too: they go behind it.
    """
    return [
        f"if held[0] == {count}:",
        f"    bound[0] = {last}",
        f"    if bound[0] > {_end(kind, False)}:",
        f"        bound[0] = bound[0] - T.{kind}(1)",
    ]


def _collected(count: int) -> int:
    """Elements that there is room for on one side."""
    return count + max(count, _LEAST_COLLECTED) + _BLOCK


def _appended(count: int, at: str) -> list[str]:
    """Lines that put an element behind all others."""
    end = f"side[0] * {_collected(count)} + held[0]"
    return [f"rank[{end}] = own[0]", f"place[{end}] = {at}", "held[0] = held[0] + 1"]


def _prune(count: int, kind: str, bits: int, blocks: int) -> list[str]:
    """Lines that sort what is collected where there is no room for a block, or no block left.

    Each digit takes what lies on one side to the other, those of one value in their order; a digit that all
    have in common is passed over.
    """
    room = _collected(count)
    last = bits // _DIGIT_BITS - 1
    # Negative ranks go before others.
    sign = f"T.if_then_else(d == {last}, {_DIGITS // 2}, 0)"
    shifted = f'T.shift_right({{}}, T.cast(d * {_DIGIT_BITS}, "{kind}"))'
    digit = f'T.bitwise_xor(T.cast(T.bitwise_and({shifted}, T.{kind}({_DIGITS - 1})), "int32"), {sign})'
    here = f"side[0] * {room}"
    sorting = [
        f"for d in range({last + 1}):",
        f"    for v in range({_DIGITS}):",
        "        start[v] = 0",
        "    for i in range(held[0]):",
        f"        at[0] = {digit.format(f'rank[{here} + i]')}",
        "        start[at[0]] = start[at[0]] + 1",
        f"    at[0] = {digit.format(f'rank[{here}]')}",
        "    if start[at[0]] < held[0]:",
        "        found[0] = 0",
        f"        for v in range({_DIGITS}):",
        "            at[0] = start[v]",
        "            start[v] = found[0]",
        "            found[0] = found[0] + at[0]",
        "        for i in range(held[0]):",
        f"            own[0] = rank[{here} + i]",
        f"            at[0] = {digit.format('own[0]')}",
        "            found[0] = start[at[0]]",
        "            start[at[0]] = found[0] + 1",
        f"            rank[(1 - side[0]) * {room} + found[0]] = own[0]",
        f"            place[(1 - side[0]) * {room} + found[0]] = place[{here} + i]",
        "        side[0] = 1 - side[0]",
    ]
    return [
        f"if held[0] > {room - _BLOCK} or b == {blocks - 1}:",
        *(f"    {line}" for line in sorting),
        f"    held[0] = T.min(held[0], {count})",
        *(f"    {line}" for line in _bounded(count, kind, f"rank[{here} + {count - 1}]")),
    ]


def _lines(indent: int, lines: list[str]) -> str:
    return "\n".join(" " * indent + line for line in lines)


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        OPERATION,
        read={
            "topk": _read_topk,
            "sort": _reader((VALUES,), "descending"),
            "argsort": _reader((PLACES,), "descending"),
        },
        function=ordering_function,
        on_cpu=True,
    ),
)
