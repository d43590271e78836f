"""How fast the processor multiplies: a loop over registers, and nothing else.

With quantised weights, the instruction that adds up products of bytes where the processor has one, or of 16
bits; in single precision, fused multiply-adds.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tvm
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as script

from host.build import build_kernel_library, target_for
from host.schedules.cpu.lane_dots import intrinsics
from targets import Board

# Independent sums: more than the latency of an instruction times those that begin in a cycle (4 cycles and 2
# on the processors that have one; Intel SDM, AMD SOG), and with both operands not above 32 registers.
_SUMS = 16
_STEPS = 4096


def products_of_bytes(kind: str, lanes: int, threads: int) -> tvm.tirx.PrimFunc:
    """Every thread adds products of bytes to sums that stay in registers.

    Arguments: operands (2, lanes, int32), result (threads * _SUMS * lanes, int32).

    Args:
        kind: of dot product, of `intrinsics`.
        lanes: 32-bit numbers of a vector.
        threads: that compute.
    """
    instruction, width = intrinsics.instruction_of(kind, lanes), 4 * lanes
    unsigned = "uint8" if kind == "u8s8" else "int8"

    def vector(buffer: Any, place: Any) -> Any:
        return buffer.vload([tvm.tirx.Ramp(place, 1, lanes)], f"int32x{lanes}")

    def step(state: Any, operands: Any, place: Any) -> Any:
        return tvm.tirx.call_llvm_pure_intrin(
            f"int32x{lanes}",
            instruction,
            vector(state, place),
            tvm.tirx.reinterpret(f"{unsigned}x{width}", vector(operands, 0)),
            tvm.tirx.reinterpret(f"int8x{width}", vector(operands, lanes)),
        )

    return _loop("int32", lanes, threads, step)


def multiply_adds(lanes: int, threads: int) -> tvm.tirx.PrimFunc:
    """Every thread multiplies and adds in single precision, with sums that stay in registers.

    Arguments: operands (2, lanes, float32), result (threads * _SUMS * lanes, float32).
    """

    def step(state: Any, operands: Any, place: Any) -> Any:
        kind = f"float32x{lanes}"
        sums = state.vload([tvm.tirx.Ramp(place, 1, lanes)], kind)
        left = operands.vload([tvm.tirx.Ramp(0, 1, lanes)], kind)
        return sums * left + operands.vload([tvm.tirx.Ramp(lanes, 1, lanes)], kind)

    return _loop("float32", lanes, threads, step)


def _loop(kind: str, lanes: int, threads: int, step: Callable[[Any, Any, Any], Any]) -> tvm.tirx.PrimFunc:
    width = _SUMS * lanes
    with IRBuilder() as builder, script.prim_func():
        script.func_name("kernel")
        script.func_attr({"tirx.noalias": True})
        operands = script.arg("operands", script.buffer((2 * lanes,), kind))
        result = script.arg("result", script.buffer((threads * width,), kind))
        with script.parallel(threads) as thread:
            state = script.alloc_buffer((width,), kind, scope="local")
            with script.unroll(_SUMS) as one, script.vectorized(lanes) as lane:
                place = one * lanes + lane
                script.buffer_store(state, result[thread * width + place], [place])
            with script.serial(_STEPS), script.unroll(_SUMS) as one:
                place = tvm.tirx.Ramp(one * lanes, 1, lanes)
                script.buffer_store(state, step(state, operands, one * lanes), [place])
            with script.unroll(_SUMS) as one, script.vectorized(lanes) as lane:
                place = one * lanes + lane
                script.buffer_store(result, state[place], [thread * width + place])
    return builder.get()


class Arithmetic:
    """The loop that only multiplies.

    Args:
        board: this machine.
        quantised: whether it multiplies bytes, else single precision.
        threads: to compute with.

    Attributes:
        multiply_adds: of a call.
    """

    def __init__(self, board: Board, quantised: bool, threads: int) -> None:
        import numpy as np

        hardware = board.hardware
        kind, lanes = hardware.dot_product, hardware.lanes
        bytes_of = quantised and intrinsics.has_intrinsic(kind, lanes)
        function = products_of_bytes(kind, lanes, threads) if bytes_of else multiply_adds(lanes, threads)
        with tempfile.TemporaryDirectory(prefix="edgetlm-arithmetic-") as folder:
            library = Path(folder) / "arithmetic.so"
            build_kernel_library({"arithmetic": function}, library, target_for(board))
            module = tvm.runtime.load_module(str(library))
        # A byte of one in every place; in single precision halves and ones, which stay finite.
        values = (
            np.full(2 * lanes, 0x01010101, np.int32)
            if bytes_of
            else np.repeat(np.array([0.5, 1.0], np.float32), lanes)
        )
        operands = tvm.runtime.tensor(values)
        result = tvm.runtime.tensor(np.zeros(threads * _SUMS * lanes, values.dtype))
        self._call: Callable[[], Any] = lambda: module["arithmetic"](operands, result)
        self.multiply_adds = threads * _SUMS * _STEPS * lanes * (4 if bytes_of else 1)
        self._call()
        expected = 4 * _STEPS if bytes_of else 2.0
        if not np.allclose(result.numpy(), expected):
            raise ValueError(f"the loop's sums are {result.numpy()[:4]} and not {expected}")

    def rate(self, seconds: float) -> float:
        """Multiply-adds a second over so many seconds, one call at least."""
        count, start_s = 0, time.perf_counter()
        while count == 0 or time.perf_counter() - start_s < seconds:
            self._call()
            count += 1
        return count * self.multiply_adds / (time.perf_counter() - start_s)
