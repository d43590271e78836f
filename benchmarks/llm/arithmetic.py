"""How fast the processor multiplies bytes: a loop over registers, and nothing else."""

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
from targets import Board, HardwareModel

# Independent sums: more than the latency of an instruction times those that begin in a cycle (4 cycles and 2
# on the processors that have one; Intel SDM, AMD SOG), and with both operands not above 32 registers.
_SUMS = 16
_STEPS = 4096


def products_of_bytes(kind: str, lanes: int, threads: int) -> tvm.tirx.PrimFunc:
    """Every thread adds products of bytes to sums that stay in registers.

    Arguments: operands (2 * lanes, int32), result (threads * _SUMS * lanes, int32).

    Args:
        kind: of dot product, of `intrinsics`.
        lanes: 32-bit numbers of a vector.
        threads: that compute.
    """
    width, size = _SUMS * lanes, 4 * lanes
    first = "uint8" if kind == "u8s8" else "int8"

    def vector(buffer: Any, place: Any) -> Any:
        return buffer.vload([tvm.tirx.Ramp(place, 1, lanes)], f"int32x{lanes}")

    with IRBuilder() as builder, script.prim_func():
        script.func_name("kernel")
        script.func_attr({"tirx.noalias": True})
        operands = script.arg("operands", script.buffer((2 * lanes,), "int32"))
        result = script.arg("result", script.buffer((threads * width,), "int32"))
        with script.parallel(threads) as thread:
            state = script.alloc_buffer((width,), "int32", scope="local")
            with script.unroll(_SUMS) as one, script.vectorized(lanes) as lane:
                place = one * lanes + lane
                script.buffer_store(state, result[thread * width + place], [place])
            with script.serial(_STEPS), script.unroll(_SUMS) as one:
                added = tvm.tirx.call_llvm_pure_intrin(
                    f"int32x{lanes}",
                    intrinsics.instruction_of(kind, lanes),
                    vector(state, one * lanes),
                    tvm.tirx.reinterpret(f"{first}x{size}", vector(operands, 0)),
                    tvm.tirx.reinterpret(f"int8x{size}", vector(operands, lanes)),
                )
                script.buffer_store(state, added, [tvm.tirx.Ramp(one * lanes, 1, lanes)])
            with script.unroll(_SUMS) as one, script.vectorized(lanes) as lane:
                place = one * lanes + lane
                script.buffer_store(result, state[place], [thread * width + place])
    return builder.get()


def multiplies_bytes(hardware: HardwareModel) -> bool:
    """Whether the loop has the processor's fastest products of bytes: not where it multiplies matrices."""
    return intrinsics.has_intrinsic(hardware.dot_product, hardware.lanes) and not hardware.byte_matrices


class Arithmetic:
    """The loop that only multiplies.

    Args:
        board: this machine, of which `multiplies_bytes` holds.
        threads: to compute with.

    Attributes:
        multiply_adds: of a call.
    """

    def __init__(self, board: Board, threads: int) -> None:
        import numpy as np

        lanes = board.hardware.lanes
        function = products_of_bytes(board.hardware.dot_product, lanes, threads)
        with tempfile.TemporaryDirectory(prefix="edgetlm-arithmetic-") as folder:
            library = Path(folder) / "arithmetic.so"
            build_kernel_library({"arithmetic": function}, library, target_for(board))
            module = tvm.runtime.load_module(str(library))
        # A byte of one in every place.
        operands = tvm.runtime.tensor(np.full(2 * lanes, 0x01010101, np.int32))
        result = tvm.runtime.tensor(np.zeros(threads * _SUMS * lanes, np.int32))
        self._call: Callable[[], Any] = lambda: module["arithmetic"](operands, result)
        self.multiply_adds = threads * _SUMS * _STEPS * lanes * 4
        self._call()
        if (result.numpy() != 4 * _STEPS).any():
            raise ValueError(f"the loop's sums are {result.numpy()[:4]} and not {4 * _STEPS}")

    def rate(self, seconds: float) -> float:
        """Multiply-adds a second over so many seconds, one call at least."""
        count, start_s = 0, time.perf_counter()
        while count == 0 or time.perf_counter() - start_s < seconds:
            self._call()
            count += 1
        return count * self.multiply_adds / (time.perf_counter() - start_s)
