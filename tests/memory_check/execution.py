"""One inference in which every kernel runs in guarded memory, several times with other contents around it.

A kernel's result may depend on its arguments alone. Each kernel runs once per `Setting`: its arguments lie
between pages that cannot be touched, its results and its workspaces are full of a pattern at first. A result
that changes with the pattern was made of memory that nobody had written, or that is not the kernel's.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import tvm
import tvm_ffi
from tvm import relax
from tvm.runtime.vm import VMInstrumentReturnKind

from host.build import kernel
from host.model import LoweredModel
from tests.memory_check.guarded import Guarded

# TVM takes workspaces with this alignment for granted.
_WORKSPACE_ALIGNMENT = 128


@dataclass(frozen=True)
class Setting:
    """What is around a kernel in one run.

    Attributes:
        pattern: of bytes that nobody has written. 0xff makes floats that are no numbers and integers of -1.
        at_end: whether buffers end at the forbidden page behind them, or begin at the one before them.
    """

    pattern: int
    at_end: bool


# Not a number and -1; large positive numbers; large negative floats.
SETTINGS = (Setting(0xFF, True), Setting(0x7E, False), Setting(0xFE, True))


@contextmanager
def workspaces_on_the_heap() -> Iterator[None]:
    """Kernels that are built meanwhile ask the runtime for each local buffer, however small.

    What lies on the stack is out of reach of the patterns, and reading it unwritten lets LLVM do anything.
    """
    with (
        mock.patch.object(kernel, "_allocate_on_stack", _on_the_heap),
        mock.patch.object(kernel, "BUILD_VERSION", f"{kernel.BUILD_VERSION} all on the heap"),
    ):
        yield


def _on_the_heap(body: tvm.tirx.Stmt) -> tvm.tirx.Stmt:
    """Leave every buffer as it is: TVM takes each that is not marked from the runtime."""
    return body


def results_of(lowered: LoweredModel) -> dict[str, int]:
    """How many results each function of a lowered model has, by name: its last arguments."""
    found: dict[str, int] = {}

    def visit(expression: Any) -> None:
        if not isinstance(expression, relax.Call) or not isinstance(expression.op, tvm.ir.Op):
            return
        if expression.op.name in ("relax.call_tir", "relax.call_dps_packed"):
            callee, made = expression.args[0], expression.ty_args[0]
            name = callee.name_hint if isinstance(callee, tvm.ir.GlobalVar) else str(callee.global_symbol)
            found[name] = len(made.fields) if isinstance(made, relax.TupleType) else 1

    relax.analysis.post_order_visit(lowered.module["main"].body, visit)
    return found


class GuardedModel:
    """A built model whose kernels run in guarded memory.

    Args:
        library: with the virtual machine's executable; never loaded before from this path.
        results: how many results each of its functions has.
        parameters: behind the inputs of every run.
        announce: told the name of each kernel before it runs, which may end the process.

    Attributes:
        faults: one line for each that was found.
    """

    def __init__(
        self,
        library: Path,
        results: Mapping[str, int],
        parameters: Sequence[np.ndarray],
        announce: Callable[[str], None] = lambda name: None,
    ) -> None:
        self.faults: list[str] = []
        self._results = results
        self._announce = announce
        self._kernels = GuardedLibrary(library)
        self._parameters = [tvm.runtime.tensor(array) for array in parameters]
        self._machine = relax.VirtualMachine(self._kernels.module, tvm.cpu())
        self._machine.set_instrument(self._instrument)

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs for one set of inputs."""
        made = self._machine["main"](*map(tvm.runtime.tensor, inputs), *self._parameters)
        return [value.numpy() for value in ([made] if hasattr(made, "numpy") else made)]

    def _instrument(self, function: Any, name: str, before: bool, returned: Any, *arguments: Any) -> int:
        """Run a kernel in place of the virtual machine; everything else is left to that."""
        if not before or name not in self._results:
            return int(VMInstrumentReturnKind.NO_OP)
        self._announce(name)
        found = self._kernels.call(function, arguments, self._results[name])
        self.faults += [line for fault in found if (line := f"{name}: {fault}") not in self.faults]
        return int(VMInstrumentReturnKind.SKIP_RUN)


class GuardedLibrary:
    """The kernels of a library in guarded memory.

    Args:
        path: of the library; never loaded before.

    Attributes:
        module: the loaded library.
    """

    def __init__(self, path: Path) -> None:
        self.module = tvm.runtime.load_module(str(path))
        self._workspaces = _Workspaces(path)

    def call(self, function: Any, arguments: Sequence[Any], results: int) -> list[str]:
        """Run a kernel in every setting; its results are written to the last arguments.

        Args:
            function: the kernel.
            arguments: tensors and numbers, the results last.
            results: how many.

        Returns:
            What it does that it may not.
        """
        count = len(arguments) - results
        found: list[str] = []
        first: list[np.ndarray] = []
        for setting in SETTINGS:
            made, faults = self._run(function, arguments, count, setting)
            found += faults
            found += [
                f"result {index} depends on memory that was never written, from element {where} on"
                for index, (have, want) in enumerate(zip(made, first, strict=False))
                if (where := _first_difference(have, want, arguments[count + index])) is not None
            ]
            first = first or made
        for tensor, data in zip(arguments[count:], first, strict=True):
            _bytes_of(tensor)[:] = data
        return list(dict.fromkeys(found))

    def _run(
        self, function: Any, arguments: Sequence[Any], count: int, setting: Setting
    ) -> tuple[list[np.ndarray], list[str]]:
        """The bytes of the results, and what was done that may not be."""
        faults: list[str] = []
        with ExitStack() as stack:
            given: list[Any] = []
            buffers: dict[int, Guarded] = {}
            for index, argument in enumerate(arguments):
                if not isinstance(argument, tvm.runtime.Tensor):
                    given.append(argument)
                    continue
                source = _bytes_of(argument)
                buffer = stack.enter_context(Guarded(source.size, setting.pattern, setting.at_end))
                buffers[index] = buffer
                if index < count:
                    buffer.content[:] = source
                given.append(_tensor_at(buffer, argument))
            faults += self._workspaces.during(lambda: function(*given), setting)
            for index, buffer in buffers.items():
                what = f"argument {index}" if index < count else f"result {index - count}"
                if where := buffer.overwritten():
                    faults.append(f"writes {where} {what}")
                if index < count and (buffer.content != _bytes_of(arguments[index])).any():
                    faults.append(f"writes to {what}")
            return [buffers[i].content.copy() for i in range(count, len(arguments))], faults


class _Workspaces:
    """Gives the kernels of a library their workspaces, each in guarded memory."""

    def __init__(self, library: Path) -> None:
        self._setting = SETTINGS[0]
        self._open: dict[int, Guarded] = {}
        self._faults: list[str] = []
        allocate = ctypes.CFUNCTYPE(
            ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_uint64, ctypes.c_int, ctypes.c_int
        )
        free = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)
        self._functions = {
            "__TVMBackendAllocWorkspace": allocate(self._allocate),
            "__TVMBackendFreeWorkspace": free(self._free),
        }
        # TVM has set these pointers when it loaded the library; one without workspaces does not have them.
        loaded = ctypes.CDLL(str(library))
        for name, function in self._functions.items():
            if hasattr(loaded, name):
                ctypes.c_void_p.in_dll(loaded, name).value = ctypes.cast(function, ctypes.c_void_p).value

    def during(self, call: Callable[[], object], setting: Setting) -> list[str]:
        """Call a kernel; what it did with its workspaces that may not be."""
        self._setting, self._faults = setting, []
        call()
        if self._open:
            self._faults.append("keeps a workspace")
        for address in list(self._open):
            self._free(0, 0, address)
        return self._faults

    def _allocate(self, device: int, number: int, size: int, code: int, bits: int) -> int:
        setting = self._setting
        buffer = Guarded(size, setting.pattern, setting.at_end, _WORKSPACE_ALIGNMENT)
        self._open[buffer.address] = buffer
        return buffer.address

    def _free(self, device: int, number: int, address: int) -> int:
        buffer = self._open.pop(address)
        if where := buffer.overwritten():
            self._faults.append(f"writes {where} a workspace of {buffer.content.size} bytes")
        buffer.close()
        return 0


def _size_of(tensor: Any) -> int:
    one = tvm_ffi.dtype(str(tensor.dtype))
    return -(-math.prod(tensor.shape) * one.bits * one.lanes // 8)


def _bytes_of(tensor: Any) -> np.ndarray:
    """The memory of a tensor."""
    size = _size_of(tensor)
    if not size:
        return np.zeros(0, np.uint8)
    return np.from_dlpack(tensor._create_view((size,), "uint8"))


def _tensor_at(buffer: Guarded, like: Any) -> Any:
    """A tensor in a guarded buffer, of the type and shape of another."""
    if not buffer.content.size:
        return tvm.runtime.empty(like.shape, str(like.dtype))
    flat = tvm_ffi.from_dlpack(buffer.content)
    return flat._create_view(like.shape, str(like.dtype))


def _first_difference(have: np.ndarray, want: np.ndarray, tensor: Any) -> int | None:
    """The first element whose bytes differ."""
    different = np.flatnonzero(have != want)
    return int(different[0]) * math.prod(tensor.shape) // have.size if different.size else None
