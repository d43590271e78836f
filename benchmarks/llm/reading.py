"""How fast the processor reads and multiplies.

Reads: loops over a buffer of the size of a model's weights, and nothing else. It lies in huge pages, as
weights do. Loops differ in what is fetched before it is read, and in how many places are read in turn: which
of them is the fastest depends on the machine, and none of them alone says what its memory gives. Multiplies:
see `arithmetic`.
"""

from __future__ import annotations

import functools
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as script

from benchmarks.llm.arithmetic import Arithmetic, multiplies_bytes
from device_agent.execute import ffi
from device_agent.execute.memory import pages
from device_agent.text_engines.worker import serve
from host.build import build_kernel_library, target_for
from host.compile.device_profile import profile_of
from host.transport import connect
from targets import Board

# Independent vectors that a step reads, as in `host.calibration.programs.stream`.
_VECTORS = 8
_LINE_BYTES = 64
# Hints of `llvm.prefetch` by the level of the cache: for reading, as data. Past all levels but the first: 0.
_READ, _DATA = 0, 1
_LOCALITY = {1: 3, 2: 2, 0: 0}


@dataclass(frozen=True)
class Loop:
    """How a thread reads its part of the buffer.

    Attributes:
        places: of it that are read in turn, a step each; every one is a stream of its own.
        ahead: bytes by which lines are fetched before they are read; 0 where nothing is fetched.
        level: of the cache that they go to: 1, 2, or 0 for the first one past all others.
    """

    places: int
    ahead: int = 0
    level: int = 2

    @property
    def name(self) -> str:
        """What it is called in results."""
        places = "one place" if self.places == 1 else f"{self.places} places in turn"
        to = "the first level alone" if self.level == 0 else f"level {self.level}"
        return f"{places}, {self.ahead} bytes ahead to {to}" if self.ahead else places


LOOPS = (
    Loop(1),
    Loop(4),
    Loop(1, 1024),
    Loop(1, 2048),
    Loop(1, 8192),
    Loop(2, 2048),
    Loop(4, 8192),
    Loop(1, 1024, level=1),
    Loop(4, 1024, level=1),
    Loop(1, 1024, level=0),
)
"""Those that are tried, of which the fastest is what memory gives."""

_MOST_PLACES = max(loop.places for loop in LOOPS)


def reading(elements: int, lanes: int, threads: int, loop: Loop) -> tvm.tirx.PrimFunc:
    """Every thread sums up its part of a buffer.

    Arguments: source (elements, int32), result (threads * _VECTORS * lanes, int32).

    Args:
        elements: of the buffer, a multiple of what the threads read in a step of each place.
        lanes: 32-bit numbers of a vector.
        threads: that read.
        loop: how.
    """
    width = _VECTORS * lanes
    steps = elements // (threads * loop.places * width)
    with IRBuilder() as builder, script.prim_func():
        script.func_name("kernel")
        script.func_attr({"tirx.noalias": True})
        source = script.arg("source", script.buffer((elements,), "int32"))
        result = script.arg("result", script.buffer((threads * width,), "int32"))
        with script.parallel(threads) as thread:
            state = script.alloc_buffer((width,), "int32", scope="local")
            with script.unroll(_VECTORS) as vector, script.vectorized(lanes) as lane:
                place = vector * lanes + lane
                script.buffer_store(state, result[thread * width + place], [place])
            with script.serial(steps) as step, script.unroll(loop.places) as stream:
                first = ((thread * loop.places + stream) * steps + step) * width
                # A line is fetched beside each load: several in a row are slower.
                for vector in range(_VECTORS):
                    if loop.ahead and vector * lanes * 4 % _LINE_BYTES == 0:
                        later = first + (vector * lanes + loop.ahead // 4)
                        script.evaluate(_fetch(source, later, loop.level))
                    with script.vectorized(lanes) as lane:
                        place = vector * lanes + lane
                        script.buffer_store(state, state[place] + source[first + place], [place])
            with script.unroll(_VECTORS) as vector, script.vectorized(lanes) as lane:
                place = vector * lanes + lane
                script.buffer_store(result, state[place], [thread * width + place])
    return builder.get()


def _fetch(source: Any, element: Any, level: int) -> Any:
    """Fetches the line of an element; behind the buffer it does no harm."""
    hints = [tirx.const(hint, "int32") for hint in (_READ, _LOCALITY[level], _DATA)]
    address = tirx.address_of(tirx.BufferLoad(source, [element]))
    return tirx.call_llvm_intrin("void", "llvm.prefetch.p0", address, *hints)


class Reading:
    """Loops over one buffer.

    Args:
        board: this machine.
        size: of the buffer in bytes, which is rounded down to what all loops read whole.
        threads: that read it, each its part.
        loops: that read it in turn.

    Attributes:
        size: of the buffer in bytes.

    Raises:
        ValueError: a loop does not read the whole buffer.
    """

    def __init__(self, board: Board, size: int, threads: int, loops: Sequence[Loop] = LOOPS) -> None:
        import numpy as np

        lanes, sums = board.hardware.lanes, threads * _VECTORS * board.hardware.lanes
        elements = size // 4 // (sums * _MOST_PLACES) * (sums * _MOST_PLACES)
        self.size = 4 * elements
        names = {loop.name: f"reading_{number}" for number, loop in enumerate(loops)}
        functions = {names[loop.name]: reading(elements, lanes, threads, loop) for loop in loops}
        with tempfile.TemporaryDirectory(prefix="edgetlm-reading-") as folder:
            library = Path(folder) / "reading.so"
            build_kernel_library(functions, library, target_for(board))
            module = tvm.runtime.load_module(str(library))
        memory, address = pages.zeroed(self.size)
        # Every page is written once, so that none is the one page of zeros that a system maps unwritten.
        np.frombuffer(memory, np.int32)[:] = 1
        source = ffi.view_of(address, (elements,), "int32", memory)
        self._calls: dict[str, Callable[[], Any]] = {}
        for name, function in names.items():
            result = tvm.runtime.tensor(np.zeros(sums, np.int32))
            self._calls[name] = functools.partial(module[function], source, result)
            self._calls[name]()
            read = int(result.numpy().astype(np.int64).sum())
            if read != elements:
                raise ValueError(f"{name}: {read} of {elements} elements are read")

    def rates(self, seconds: float) -> dict[str, float]:
        """Bytes a second of each loop in turn.

        Args:
            seconds: of all of them; each reads the buffer once at least.
        """
        found = {}
        for name, call in self._calls.items():
            count, start_s = 0, time.perf_counter()
            while count == 0 or time.perf_counter() - start_s < seconds / len(self._calls):
                call()
                count += 1
            found[name] = count * self.size / (time.perf_counter() - start_s)
        return found


class Reader:
    """The loops over one buffer, and that over registers."""

    def __init__(self) -> None:
        self._reading: Reading | None = None
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
        with connect("local") as device:
            board = profile_of(device, threads).board
        self._reading = Reading(board, size, threads)
        multiplies = quantised and multiplies_bytes(board.hardware)
        self._arithmetic = Arithmetic(board, threads) if multiplies else None
        return {"bytes": self._reading.size, "multiplies": multiplies}

    def read(self, seconds: float) -> dict[str, Any]:
        """`bytes_per_s` of each loop, see `Reading.rates`."""
        if self._reading is None:
            raise ValueError("nothing is loaded")
        return {"bytes_per_s": self._reading.rates(seconds)}

    def multiply(self, seconds: float) -> dict[str, Any]:
        """Multiply-adds per second over so many seconds."""
        if self._arithmetic is None:
            raise ValueError("nothing is loaded")
        return {"multiply_adds_per_s": self._arithmetic.rate(seconds)}


if __name__ == "__main__":
    os.environ.setdefault("TVM_NUM_THREADS", "1")
    reader = Reader()
    serve({"load": reader.load, "read": reader.read, "multiply": reader.multiply})
