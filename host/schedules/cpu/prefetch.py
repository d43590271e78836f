"""Fetches what a later part of a program reads into the cache while an earlier part computes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import s_tir, tirx

LINE_ELEMENTS = 16
# Hints of `llvm.prefetch`: for reading, into the second level, as data.
_READ, _SECOND_LEVEL, _DATA = 0, 2, 1


def prefetch_in(
    schedule: s_tir.Schedule,
    loop: Any,
    buffer: tirx.Buffer,
    step: Any,
    lines: int,
    steps: int,
    element: Callable[[Any], Any],
) -> None:
    """Spreads the prefetch of some cache lines over the iterations of a loop nest.

    Memory is slower than a core computes, and a core looks ahead only a few hundred instructions: where a
    program fetches and computes in turns, one waits for the other unless fetching starts earlier. The
    prefetches are not a step of the trace: a replayed trace computes the same without them.

    Args:
        schedule: the schedule; `loop` keeps its meaning.
        loop: the innermost loop of the nest; fetches go to the start of its body.
        buffer: what to fetch from, an argument of the function.
        step: number of the iteration of the nest.
        lines: cache lines to fetch.
        steps: iterations of the nest.
        element: for the number of a line, the place of its first element in memory order; places outside of
            the buffer do no harm.
    """
    count = -(-lines // steps)
    number = tirx.Var("line", "int32")
    place = [0] * (len(buffer.shape) - 1)
    address = tirx.address_of(tirx.BufferLoad(buffer, [*place, element(step * count + number)]))
    hints = [tirx.const(hint, "int32") for hint in (_READ, _SECOND_LEVEL, _DATA)]
    fetch = tirx.Evaluate(tirx.call_llvm_intrin("void", "llvm.prefetch.p0", address, *hints))
    kind = tirx.ForKind.UNROLLED if count <= 16 else tirx.ForKind.SERIAL
    fetches = tirx.For(number, 0, count, kind, fetch)
    if count * steps >= lines + count:
        fetches = tirx.IfThenElse(step * count < lines, fetches, None)
    old = schedule.get(loop)
    body = tirx.SeqStmt([fetches, old.body])
    new = tirx.For(old.loop_var, old.min, old.extent, old.kind, body, old.thread_binding, old.annotations)
    schedule.state.replace(schedule.get_sref(loop), new)


def linear(loops: Sequence[tuple[Any, int]]) -> tuple[Any, int]:
    """Number of the iteration of a nest, and how many there are.

    Args:
        loops: variable and extent, outermost first.
    """
    number: Any = 0
    for variable, extent in loops:
        number = number * extent + variable
    return number, math.prod(extent for _, extent in loops)
