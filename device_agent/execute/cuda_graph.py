"""CUDA graphs of compiled models: one launch starts all kernels of an inference, or up to a call of the CPU.

Each launch of a kernel costs the processor some microseconds, and the virtual machine as much again, so that
small models are limited by the processor. A graph has the kernels, their order and their arguments, addresses
included. Therefore the tensors of an inference stay allocated as long as the graph.

Source of the functions: CUDA Runtime API (stream and graph management).
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, List, Optional

from device_agent.contract.text import printable
from device_agent.errors import AgentError
from device_agent.execute import ffi, shared_memory
from device_agent.execute.kernel_times import BUILTIN
from device_agent.execute.shared_memory import CROSS, TENSOR, CudaRuntime

# Those of the machine's own calls that handle memory and shapes, and never read or write the elements of a
# tensor of the GPU.
_WITHOUT_DATA = frozenset(
    BUILTIN + name
    for name in (
        "alloc_shape_heap",
        "alloc_storage",
        "alloc_tensor",
        "check_func_info",
        "check_prim_value_info",
        "check_shape_info",
        "check_string_info",
        "check_tensor_info",
        "check_tuple_info",
        "copy",
        "edgetlm_beside",
        "edgetlm_tensor",
        "ensure_zero_offset",
        "invoke_closure",
        "make_closure",
        "make_prim_value",
        "make_shape",
        "make_tuple",
        "match_prim_value",
        "match_shape",
        "null_value",
        "reshape",
        "shape_of",
        "tuple_getitem",
        "tuple_reset_item",
    )
)
# Functions on the host that compute sizes from sizes; the compiler names them.
_SIZES = "shape_func"
# cudaStreamCaptureModeRelaxed: memory may be allocated meanwhile.
_RELAXED = 2
_CPU = 1


class _Recording:
    """An instrument of a virtual machine that records its calls as steps, and keeps its memory.

    What starts on the GPU becomes graphs. A call of the CPU, or a copy between both, ends a graph, and is
    made again between that graph and the next one. A graph is started as soon as it is recorded: the CPU
    reads what it has computed. Other calls that cannot be repeated are refused.

    Args:
        runtime: the CUDA runtime library.
        stream: whose work is recorded.

    Attributes:
        kept: memory that the calls have taken.
        steps: the calls to make, in order.
        graphs: those of them that are graphs, to be destroyed.
    """

    def __init__(self, runtime: CudaRuntime, stream: Any) -> None:
        self.kept: List[Any] = []
        self.steps: List[Callable[[], Any]] = []
        self.graphs: List[ctypes.c_void_p] = []
        self._runtime, self._stream = runtime, stream
        self._recording = False
        self._kernels = 0

    def __call__(self, function: Any, name: str, before: bool, result: Any, *arguments: Any) -> None:
        if not before:
            if name in (BUILTIN + "alloc_storage", TENSOR):
                self.kept.append(result)
            elif name not in _WITHOUT_DATA and not name.startswith(_SIZES):
                self.begin()
            return
        if name in _WITHOUT_DATA or name.startswith(_SIZES):
            return
        foreign = name.startswith(("vm.", "tvm.", "runtime.")) and name != CROSS
        if foreign:
            raise AgentError("engine", "%s runs on the processor" % printable(name))
        if name != CROSS and not any(_on_the_host(argument) for argument in arguments):
            self._kernels += 1
            return
        self.end()
        self.steps.append(functools.partial(function, *arguments))

    def begin(self) -> None:
        """Records from here on, if it does not yet."""
        if not self._recording:
            self._runtime.call("cudaStreamBeginCapture", self._stream, _RELAXED)
            self._recording = True

    def end(self) -> None:
        """Makes a graph of what was recorded, and starts it."""
        if not self._recording:
            return
        graph, made = ctypes.c_void_p(), ctypes.c_void_p()
        self._recording = False
        self._runtime.call("cudaStreamEndCapture", self._stream, ctypes.byref(graph))
        try:
            if self._kernels:
                self._runtime.call("cudaGraphInstantiate", ctypes.byref(made), graph, ctypes.c_ulonglong(0))
                self.graphs.append(made)
        finally:
            self._runtime.release("cudaGraphDestroy", graph)
        if self._kernels:
            self._kernels = 0
            # The default stream: after copies of inputs and before those of outputs.
            self.steps.append(functools.partial(self._runtime.call, "cudaGraphLaunch", made, None))
            self.steps[-1]()

    def leave(self) -> None:
        """Ends a recording that failed: the thread cannot go on with other work while it records."""
        graph = ctypes.c_void_p()
        if self._recording:
            self._recording = False
            self._runtime.release("cudaStreamEndCapture", self._stream, ctypes.byref(graph))
        if graph:
            self._runtime.release("cudaGraphDestroy", graph)
        for made in self.graphs:
            self._runtime.release("cudaGraphExecDestroy", made)


def _on_the_host(argument: Any) -> bool:
    device = getattr(argument, "device", None)
    return device is not None and device.dlpack_device_type() == _CPU


class GraphedCall:
    """A function of a model on a GPU that is called with the same tensors again and again.

    The first call starts its kernels one by one: it loads the kernels and allocates memory. The second call
    records them as a graph, and from then on each call starts the graph. The outputs are the same tensors in
    every call. Where a graph cannot repeat the function, it goes on kernel by kernel, and `reason` says why.

    Args:
        device: the GPU, as a device of TVM.
        plain: calls the function.
        instrumented: makes the same function on a virtual machine of its own, which reports to an instrument.

    Attributes:
        reason: why there is no graph; empty where there is one, and before the second call.
    """

    def __init__(
        self, device: Any, plain: Callable[[], Any], instrumented: Callable[[Any], Callable[[], Any]]
    ) -> None:
        self._device, self._plain, self._instrumented = device, plain, instrumented
        self._calls = 0
        # TVM gives each thread scratch memory of its own, and frees it when the thread ends or asks for more.
        # So a thread that does nothing else makes the first two calls: the first takes as much as is ever
        # needed, and the graph may keep the addresses as long as the thread lives.
        self._thread: Optional[ThreadPoolExecutor] = ThreadPoolExecutor(1, "edgetlm-graph")
        self.reason = ""
        self._recorded: Optional[_Recording] = None
        self._result: Any = None

    @property
    def launch(self) -> str:
        """How the kernels of the next call are started, for records of measurements."""
        if self._recorded is None:
            return "kernel by kernel" + (": " + self.reason if self.reason else "")
        graphs, steps = len(self._recorded.graphs), len(self._recorded.steps)
        if graphs == steps:
            return "CUDA graph"
        return "CUDA graphs: %d, around %d calls and copies of the CPU" % (graphs, steps - graphs)

    def __call__(self) -> Any:
        """Runs the function once; returns when the GPU has finished."""
        records = self._calls == 1 and self._thread is not None
        if records and self._thread is not None:
            self._thread.submit(self._record).result()
        self._calls = min(2, self._calls + 1)
        if self._recorded is None:
            own = self._thread if self._calls == 1 else None
            result = self._plain() if own is None else own.submit(self._plain).result()
        else:
            # What is recorded has been run by that.
            for step in () if records else self._recorded.steps:
                step()
            result = self._result
        shared_memory.synchronise()
        return result

    def _record(self) -> None:
        try:
            self._recorded = self._captured(CudaRuntime())
        except Exception as error:  # noqa: BLE001  # tvm_ffi raises any class, by name
            self.reason, self._result, self._thread = printable(str(error)), None, None

    def _captured(self, runtime: CudaRuntime) -> _Recording:
        stream = ctypes.c_void_p()
        runtime.call("cudaStreamCreate", ctypes.byref(stream))
        recording = _Recording(runtime, stream)
        try:
            call = self._instrumented(recording)
            with ffi.load_runtime().use_raw_stream(self._device, stream.value):
                recording.begin()
                self._result = call()
                recording.end()
        except BaseException:
            recording.leave()
            raise
        finally:
            runtime.release("cudaStreamDestroy", stream)
        for made in recording.graphs:
            weakref.finalize(self, runtime.release, "cudaGraphExecDestroy", made).atexit = False
        return recording
