"""The programs that calibration runs on a device, written in TensorIR.

Sizes are arguments, so that each program is compiled once for all memory levels. All loops that matter are
such that LLVM can neither fold nor reorder them: every step needs the result of the one before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tvm
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as script

LINE_ELEMENTS = 16
"""int32 elements of one step of the pointer chase: 64 bytes, the cache line of all boards."""

STREAMS = 8
"""Independent vectors that the streaming program reads in one step."""

FUSED_STEPS = 4096
INTEGER_STEPS = 1 << 16
INTEGER_CYCLES = 2
"""Cycles of one step of the integer chain: an addition and an exclusive or, one cycle each on any core."""

# A full-period linear congruential sequence modulo a power of two (Hull and Dobell 1962): the multiplier is
# one more than a multiple of 4, the increment odd. Small enough that no product leaves 32 bits below
# 1 GiB of lines.
_MULTIPLIER, _INCREMENT = 77, 12345


def _function(build: Callable[[], None]) -> tvm.tirx.PrimFunc:
    with IRBuilder() as builder, script.prim_func():
        script.func_name("kernel")
        script.func_attr({"tirx.noalias": True})
        build()
    return builder.get()


def fused_chains(chains: int, lanes: int) -> tvm.tirx.PrimFunc:
    """`chains` independent vectors, each through `FUSED_STEPS` dependent multiply-adds.

    Arguments: start (chains * lanes), factor (lanes), summand (lanes), result (chains * lanes), all fp32.
    One chain gives the latency of a fused multiply-add; enough of them give the peak rate.
    """

    def build() -> None:
        start = script.arg("start", script.buffer((chains * lanes,), "float32"))
        factor = script.arg("factor", script.buffer((lanes,), "float32"))
        summand = script.arg("summand", script.buffer((lanes,), "float32"))
        result = script.arg("result", script.buffer((chains * lanes,), "float32"))
        state = script.alloc_buffer((chains * lanes,), "float32", scope="local")
        with script.unroll(chains) as chain, script.vectorized(lanes) as lane:
            script.buffer_store(state, start[chain * lanes + lane], [chain * lanes + lane])
        with script.serial(FUSED_STEPS), script.unroll(chains) as chain, script.vectorized(lanes) as lane:
            place = chain * lanes + lane
            script.buffer_store(state, state[place] * factor[lane] + summand[lane], [place])
        with script.unroll(chains) as chain, script.vectorized(lanes) as lane:
            script.buffer_store(result, state[chain * lanes + lane], [chain * lanes + lane])

    return _function(build)


def integer_chain() -> tvm.tirx.PrimFunc:
    """`INTEGER_STEPS` dependent steps of an addition and an exclusive or: the clock.

    Arguments: operands (2), result (1), int64.
    """

    def build() -> None:
        operands = script.arg("operands", script.buffer((2,), "int64"))
        result = script.arg("result", script.buffer((1,), "int64"))
        state = script.alloc_buffer((1,), "int64", scope="local")
        script.buffer_store(state, operands[0], [0])
        with script.serial(INTEGER_STEPS // 16), script.unroll(16):
            script.buffer_store(state, (state[0] + operands[0]) ^ operands[1], [0])
        script.buffer_store(result, state[0], [0])

    return _function(build)


def stream(elements: int, lanes: int) -> tvm.tirx.PrimFunc:
    """Reads the first `steps` blocks of `STREAMS` vectors, `passes` times over.

    Arguments: source (elements, int32), result (STREAMS * lanes, int32), steps, passes.
    """

    def build() -> None:
        source = script.arg("source", script.buffer((elements,), "int32"))
        result = script.arg("result", script.buffer((STREAMS * lanes,), "int32"))
        steps = script.arg("steps", script.int32())
        passes = script.arg("passes", script.int32())
        width = STREAMS * lanes
        state = script.alloc_buffer((width,), "int32", scope="local")
        with script.unroll(STREAMS) as vector, script.vectorized(lanes) as lane:
            script.buffer_store(state, result[vector * lanes + lane], [vector * lanes + lane])
        # A sum and no bitwise operation: LLVM joins two of those in one instruction and reads out of order,
        # which costs a prefetcher three quarters of its bandwidth.
        with (
            script.serial(passes),
            script.serial(steps) as step,
            script.unroll(STREAMS) as vector,
            script.vectorized(lanes) as lane,
        ):
            place = vector * lanes + lane
            script.buffer_store(state, state[place] + source[step * width + place], [place])
        with script.unroll(STREAMS) as vector, script.vectorized(lanes) as lane:
            script.buffer_store(result, state[vector * lanes + lane], [vector * lanes + lane])

    return _function(build)


def chase_fill(elements: int) -> tvm.tirx.PrimFunc:
    """Writes into the first `lines` lines a cycle through all of them that no prefetcher follows.

    Arguments: chain (elements, int32), lines (a power of two).
    """

    def build() -> None:
        chain = script.arg("chain", script.buffer((elements,), "int32"))
        lines = script.arg("lines", script.int32())
        with script.serial(lines) as line:
            following = (line * _MULTIPLIER + _INCREMENT) & (lines - 1)
            script.buffer_store(chain, following * LINE_ELEMENTS, [line * LINE_ELEMENTS])

    return _function(build)


def chase(elements: int) -> tvm.tirx.PrimFunc:
    """Follows the chain for `steps` loads, each at the address that the last one gave.

    Arguments: chain (elements, int32), place (1, int32; where to go on, also in the next call), steps.
    """

    def build() -> None:
        chain = script.arg("chain", script.buffer((elements,), "int32"))
        place = script.arg("place", script.buffer((1,), "int32"))
        steps = script.arg("steps", script.int32())
        state = script.alloc_buffer((1,), "int32", scope="local")
        script.buffer_store(state, place[0], [0])
        with script.serial(steps):
            script.buffer_store(state, chain[state[0]], [0])
        script.buffer_store(place, state[0], [0])

    return _function(build)


def launch(threads: int) -> tvm.tirx.PrimFunc:
    """A parallel loop with next to nothing to do: what starting and joining it costs.

    Arguments: result (threads * LINE_ELEMENTS, int32).
    """

    def build() -> None:
        result = script.arg("result", script.buffer((threads * LINE_ELEMENTS,), "int32"))
        with script.parallel(threads) as thread:
            script.buffer_store(result, thread, [thread * LINE_ELEMENTS])

    return _function(build)


def programs(
    elements: int, lanes: int, chains: tuple[int, ...], threads: int
) -> Mapping[str, tvm.tirx.PrimFunc]:
    """Every program by the name to call it by; `fused_N` for each number of chains."""
    found: dict[str, Any] = {f"fused_{count}": fused_chains(count, lanes) for count in chains}
    found |= {
        "integer_chain": integer_chain(),
        "stream": stream(elements, lanes),
        "chase_fill": chase_fill(elements),
        "chase": chase(elements),
    }
    if threads > 1:
        found["launch"] = launch(threads)
    return found
