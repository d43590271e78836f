"""The program of a scatter, as text of TVMScript.

A step copies its part of the data and then combines the updates that fall into it, one after another in their
own order, so that results do not depend on the threads. Parts are other elements of O, other columns of I, or
other places of A: then each step looks at all places, and leaves those out that belong to another step.
"""

from __future__ import annotations

from tvm import s_tir

from host.lowering.ops.sequential.scattering import OPERATION, combined_text, place_text
from host.lowering.types import numeric_type
from host.schedules.scatter import Scatter, scatter_buffers
from host.schedules.script import put_script


def put_scatter(schedule: s_tir.Schedule, scatter: Scatter, columns: int, splits: int, shared: bool) -> None:
    """Puts a program into the place of the whole function.

    Args:
        schedule: of the function.
        scatter: its extents.
        columns: elements of I that a step takes.
        splits: parts of the places of A, each a step of its own.
        shared: whether threads share the steps.
    """
    tiles = -(-scatter.inner // columns)
    loop = "T.parallel" if shared else "T.serial"
    lines = [
        f"for n in {loop}({scatter.outer * tiles * splits}):",
        f'    with T.sblock("{OPERATION}"):',
        f"        vo = T.axis.spatial({scatter.outer}, n // {tiles * splits})",
        f"        vt = T.axis.spatial({tiles}, n // {splits} % {tiles})",
        f"        vs = T.axis.spatial({splits}, n % {splits})",
        "        T.reads()",
        "        T.writes()",
        '        at = T.sblock_alloc_buffer((1,), "int32", scope="local")',
        *_indented(8, _copied(scatter, columns, splits)),
        *_indented(8, _updated(scatter, columns, splits)),
    ]
    put_script(schedule, lines, **scatter_buffers(schedule))


def _copied(scatter: Scatter, columns: int, splits: int) -> list[str]:
    """Text that copies a part of the data; of whole rows in one run."""
    size, inner = scatter.size, scatter.inner
    rows = part_of(size, splits)
    many = _rest(rows, size, "vs") if splits > 1 else str(size)
    if columns == inner:
        # Not a loop: a large copy by the library does not read the lines that it writes.
        place, row_bytes = f"vo, vs * {rows}, 0", inner * numeric_type(scatter.dtype).bytes
        whole = f"T.int64({size * row_bytes})"
        part = f'T.Cast("int64", {many}) * T.int64({row_bytes})'
        both = f"T.address_of(result[{place}]), T.address_of(data[{place}])"
        return [f'T.evaluate(T.call_extern("handle", "memcpy", {both}, {whole if splits == 1 else part}))']
    index = f"vo, vs * {rows} + a, vt * {columns} + i"
    return [
        f"for a in range({many}):",
        f"    for i in range({_rest(columns, inner, 'vt')}):",
        f"        result[{index}] = data[{index}]",
    ]


def _updated(scatter: Scatter, columns: int, splits: int) -> list[str]:
    """Text that combines the updates of a part."""
    column = f"vt * {columns} + i"
    old, new = f"result[vo, at[0], {column}]", f"updates[vo, m, {column}]"
    stored = [f"{old} = {combined_text(scatter.reduction, old, new, scatter.dtype)}"]
    every = f"for i in range({_rest(columns, scatter.inner, 'vt')}):"
    found = [
        f"at[0] = {place_text(scatter.places, scatter.strides, ('vo', 'm', column))}",
        "if at[0] < 0:",
        f"    at[0] = at[0] + {scatter.size}",
    ]
    rows = part_of(scatter.size, splits)
    inside = [f"if at[0] >= vs * {rows} and at[0] < vs * {rows} + {rows}:"] if splits > 1 else []
    if scatter.by_row:
        body = [*found, *_within(inside, [every, *_indented(4, stored)])]
    else:
        body = [every, *_indented(4, [*found, *_within(inside, stored)])]
    return [f"for m in range({scatter.count}):", *_indented(4, body)]


def part_of(size: int, splits: int) -> int:
    """Places of A that a step has; the last step may have fewer."""
    return -(-size // splits)


def _rest(step: int, size: int, number: str) -> str:
    """Text of how many of `size` a step has, of which all but the last have `step`."""
    return str(step) if size % step == 0 else f"T.min({step}, {size} - {number} * {step})"


def _within(condition: list[str], lines: list[str]) -> list[str]:
    return [*condition, *_indented(4, lines)] if condition else lines


def _indented(indent: int, lines: list[str]) -> list[str]:
    return [" " * indent + line for line in lines]
