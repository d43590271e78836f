"""The program of a scatter, as text of TVMScript: lists of the updates of each place, then every result.

A first kernel makes the lists empty. In a second one each update enters the list of its place by an exchange
(`atomicExch`, CUDA C++ Programming Guide, "Atomic Functions"), so that the order of a list is that of the
threads. A thread of the third kernel has one result, and combines the updates of its list in their own order:
it looks for the next one in the list, or where the list is long, in the places of all updates. So results are
those of one update after another, whatever the order of the threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import s_tir
from tvm.backend.cuda.op import cuda_func_call

from host.lowering.ops.sequential.scattering import combined_text, place_text
from host.schedules.cuda import scripts
from host.schedules.scatter import Scatter, scatter_buffers
from host.schedules.script import put_script


def put_scatter(schedule: s_tir.Schedule, scatter: Scatter, warps: int) -> None:
    """Puts a program into the place of the whole function.

    Args:
        schedule: of the function.
        scatter: its extents.
        warps: of a block.
    """
    combine = _replaced if scatter.reduction == "update" else _combined
    lines = [
        f'heads = T.sblock_alloc_buffer(({scatter.lists},), "int32")',
        f'later = T.sblock_alloc_buffer(({scatter.entries},), "int32")',
        *_flat("clear", scatter.lists, warps, lambda n: [f"heads[{n}] = -1"]),
        *_flat("list", scatter.entries, warps, lambda n: _listed(scatter, n)),
        *_flat("combine", scatter.results, warps, lambda n: combine(scatter, n)),
    ]
    put_script(schedule, lines, **scatter_buffers(schedule), exchange=_exchange)


def _flat(name: str, count: int, warps: int, body: Callable[[str], list[str]]) -> list[str]:
    """Text of a kernel with a thread for each number below `count`, whose text the body gets."""
    threads = warps * scripts.WARP
    number = f"(block * {threads} + warp * {scripts.WARP} + lane)"
    return [
        *scripts.bound(-(-count // threads), warps, name),
        *(" " * 16 + line for line in _local("at", 4, "int32")),
        f"                if {number} < {count}:",
        *(" " * 20 + line for line in body(number)),
    ]


def _local(name: str, size: int, dtype: str) -> list[str]:
    return [f'{name} = T.sblock_alloc_buffer(({size},), "{dtype}", scope="local")']


def _exchange(heads: Any, place: Any, update: Any) -> Any:
    """The update that was the first one of a list, in whose place another one is now."""
    name = "edgetlm_exchange"
    text = (
        f"static __device__ __forceinline__ int {name}(int* heads, int place, int update) {{\n"
        "  return atomicExch(heads + place, update);\n}\n"
    )
    return cuda_func_call(name, heads, place, update, source_code=text, return_type="int32")


def _listed(scatter: Scatter, n: str) -> list[str]:
    """Text that puts one update into the list of its place."""
    across = scatter.places[2]
    o, m, i = (
        f"({n} // {scatter.count * across})",
        f"({n} // {across} % {scatter.count})",
        f"({n} % {across})",
    )
    return [
        f"at[0] = {place_text(scatter.places, scatter.strides, (o, m, i))}",
        "if at[0] < 0:",
        f"    at[0] = at[0] + {scatter.size}",
        f"later[{n}] = exchange(heads.data, ({o} * {scatter.size} + at[0]) * {across} + {i}, {m})",
    ]


def _indices(scatter: Scatter, n: str) -> tuple[str, str, str]:
    """Text of the indices of a result."""
    size, inner = scatter.size, scatter.inner
    return f"({n} // {size * inner})", f"({n} // {inner} % {size})", f"({n} % {inner})"


def _list(scatter: Scatter, n: str) -> tuple[str, str]:
    """Text of the number of a result's list, and of the place of its update `at[2]` among all."""
    (o, a, i), across = _indices(scatter, n), scatter.places[2]
    # One list serves all results along a dimension in which places are the same.
    o, i = o if scatter.places[0] > 1 else "0", i if across > 1 else "0"
    number = f"({o} * {scatter.size} + {a}) * {across} + {i}"
    return number, f"({o} * {scatter.count} + at[2]) * {across} + {i}"


def _replaced(scatter: Scatter, n: str) -> list[str]:
    """Text that writes the last update of a result's list, or what was there before."""
    (o, a, i), (first, entry) = _indices(scatter, n), _list(scatter, n)
    return [
        "at[0] = -1",
        f"at[2] = heads[{first}]",
        "while at[2] >= 0:",
        "    at[0] = T.max(at[0], at[2])",
        f"    at[2] = later[{entry}]",
        "if at[0] >= 0:",
        f"    result[{o}, {a}, {i}] = updates[{o}, at[0], {i}]",
        "else:",
        f"    result[{o}, {a}, {i}] = data[{o}, {a}, {i}]",
    ]


def _longest(scatter: Scatter) -> int:
    """The longest list that is searched again for each of its updates: about as long as all places."""
    return max(1, int(scatter.count**0.5))


def _combined(scatter: Scatter, n: str) -> list[str]:
    """Text that combines the updates of a result's list.

    `at` has the last update that was combined, the next one, one that is looked at, and the list's length.
    """
    (o, a, i), (first, entry), count = _indices(scatter, n), _list(scatter, n), scatter.count
    place = place_text(scatter.places, scatter.strides, (o, "at[2]", i))
    value = combined_text(scatter.reduction, "value[0]", f"updates[{o}, at[1], {i}]", scatter.dtype)
    return [
        *_local("value", 1, scatter.dtype),
        f"value[0] = data[{o}, {a}, {i}]",
        "at[0] = -1",
        "at[1] = 0",
        "at[3] = 0",
        f"while at[1] < {count}:",
        f"    at[1] = {count}",
        f"    if at[3] <= {_longest(scatter)}:",
        "        at[3] = 0",
        f"        at[2] = heads[{first}]",
        "        while at[2] >= 0:",
        "            if at[2] > at[0] and at[2] < at[1]:",
        "                at[1] = at[2]",
        "            at[3] = at[3] + 1",
        f"            at[2] = later[{entry}]",
        "    else:",
        "        at[2] = at[0] + 1",
        "        while at[2] < at[1]:",
        f"            if {place} == {a} or {place} + {scatter.size} == {a}:",
        "                at[1] = at[2]",
        "            at[2] = at[2] + 1",
        f"    if at[1] < {count}:",
        f"        value[0] = {value}",
        "        at[0] = at[1]",
        f"result[{o}, {a}, {i}] = value[0]",
    ]
