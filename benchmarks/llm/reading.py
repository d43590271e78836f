"""How fast the processor reads and multiplies.

Reads: a loop over a buffer of the size of a model's weights, and nothing else. Multiplies: see `arithmetic`.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import tvm
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as script

from benchmarks.llm.arithmetic import Arithmetic, multiplies_bytes
from device_agent.text_engines.worker import serve
from host.build import build_kernel_library, target_for
from host.compile.device_profile import profile_of
from host.transport import connect

# Independent vectors that a step reads, as in `host.calibration.programs.stream`.
_STREAMS = 8


def reading(elements: int, lanes: int, threads: int) -> tvm.tirx.PrimFunc:
    """Every thread sums up its part of a buffer.

    Arguments: source (elements, int32), result (threads * _STREAMS * lanes, int32).
    """
    width = _STREAMS * lanes
    steps = elements // (threads * width)
    with IRBuilder() as builder, script.prim_func():
        script.func_name("kernel")
        script.func_attr({"tirx.noalias": True})
        source = script.arg("source", script.buffer((elements,), "int32"))
        result = script.arg("result", script.buffer((threads * width,), "int32"))
        with script.parallel(threads) as thread:
            state = script.alloc_buffer((width,), "int32", scope="local")
            with script.unroll(_STREAMS) as vector, script.vectorized(lanes) as lane:
                place = vector * lanes + lane
                script.buffer_store(state, result[thread * width + place], [place])
            with (
                script.serial(steps) as step,
                script.unroll(_STREAMS) as vector,
                script.vectorized(lanes) as lane,
            ):
                place = vector * lanes + lane
                value = source[(thread * steps + step) * width + place]
                script.buffer_store(state, state[place] + value, [place])
            with script.unroll(_STREAMS) as vector, script.vectorized(lanes) as lane:
                place = vector * lanes + lane
                script.buffer_store(result, state[place], [thread * width + place])
    return builder.get()


class Reader:
    """The loop over one buffer, and that over registers."""

    def __init__(self) -> None:
        self._call: Any = None
        self._bytes = 0
        self._arithmetic: Arithmetic | None = None

    def load(self, size: int, threads: int, quantised: bool) -> dict[str, Any]:
        """Make the loops.

        Args:
            size: bytes of the buffer.
            threads: that read it, each its part.
            quantised: whether the loop over registers is made, where the processor has it.

        Returns:
            `bytes` of the buffer, and whether it `multiplies`.
        """
        import numpy as np

        with connect("local") as device:
            board = profile_of(device, threads).board
        lanes = board.hardware.lanes
        whole = threads * _STREAMS * lanes
        elements = size // 4 // whole * whole
        with tempfile.TemporaryDirectory(prefix="edgetlm-reading-") as folder:
            library = Path(folder) / "reading.so"
            functions = {"reading": reading(elements, lanes, threads)}
            build_kernel_library(functions, library, target_for(board))
            module = tvm.runtime.load_module(str(library))
        # Every page is written once, so that none is the one page of zeros that a system maps unwritten.
        source = tvm.runtime.tensor(np.ones(elements, np.int32))
        result = tvm.runtime.tensor(np.zeros(whole, np.int32))
        self._call = lambda: module["reading"](source, result)
        self._bytes = 4 * elements
        self._call()
        read = int(result.numpy().astype(np.int64).sum())
        if read != elements:
            raise ValueError(f"the loop read {read} of {elements} elements")
        multiplies = quantised and multiplies_bytes(board.hardware)
        self._arithmetic = Arithmetic(board, threads) if multiplies else None
        return {"bytes": self._bytes, "multiplies": multiplies}

    def read(self, seconds: float) -> dict[str, Any]:
        """Bytes per second over so many seconds, the buffer read once at least."""
        count, start_s = 0, time.perf_counter()
        while count == 0 or time.perf_counter() - start_s < seconds:
            self._call()
            count += 1
        return {"bytes_per_s": count * self._bytes / (time.perf_counter() - start_s)}

    def multiply(self, seconds: float) -> dict[str, Any]:
        """Multiply-adds per second over so many seconds."""
        if self._arithmetic is None:
            raise ValueError("nothing is loaded")
        return {"multiply_adds_per_s": self._arithmetic.rate(seconds)}


if __name__ == "__main__":
    os.environ.setdefault("TVM_NUM_THREADS", "1")
    reader = Reader()
    serve({"load": reader.load, "read": reader.read, "multiply": reader.multiply})
