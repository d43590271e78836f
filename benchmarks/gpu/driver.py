"""CUDA's driver by `ctypes`: memory, kernels, graphs and times. It needs no toolkit and no compiler.

CUDA Driver API 13.0; the functions are those that have not changed since CUDA 11.4.
"""

from __future__ import annotations

import ctypes
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

_LIBRARY = "libcuda.so.1"
# CU_STREAM_NON_BLOCKING, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL; numbers of CUdevice_attribute.
_NON_BLOCKING, _THREAD_LOCAL = 1, 1
_MULTIPROCESSORS, _MAJOR, _MINOR = 16, 75, 76
# CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, and what a launch may have without it.
_DYNAMIC_SHARED, _USUAL_SHARED_BYTES = 8, 48 << 10
# Length of a sample, samples, and calls that one graph has at most.
SAMPLE_S, SAMPLES, _MOST_CALLS = 1e-3, 9, 400
# A call that takes longer than this is timed alone.
_LONG_S = 5e-3


class DriverError(Exception):
    """The driver is missing, or refuses something; the message says what."""


class NoGpu(DriverError):
    """There is no driver or no GPU for any process: a stub of the library, or a driver without a device."""


class OtherGpu(NoGpu):
    """There is a GPU, which does not run the machine code that there is."""


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel.

    Attributes:
        function: handle of the kernel.
        blocks, threads: along x, y and z.
        addresses: its arguments, all of which are memory of the GPU.
        shared_bytes: of shared memory that it asks for, beside what the kernel declares.
    """

    function: int
    blocks: tuple[int, ...]
    threads: tuple[int, ...]
    addresses: tuple[int, ...]
    shared_bytes: int = 0


@dataclass(frozen=True)
class Sampler:
    """What times a call again and again.

    Attributes:
        take: seconds of one call.
        samples: how many are worth taking: one of a long call, which was taken already.
    """

    take: Callable[[], float]
    samples: int


class Driver:
    """The first GPU, in the context that libraries such as torch use too.

    Raises:
        NoGpu: there is no driver or no GPU.
        DriverError: the context cannot be used, as after a fault of a kernel.
    """

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL(_LIBRARY)
        except OSError as error:
            raise NoGpu(f"no NVIDIA driver: {error}") from error
        device, context = ctypes.c_int(), ctypes.c_void_p()
        try:
            self._call("cuInit", ctypes.c_uint(0))
            self._call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
        except DriverError as error:
            raise NoGpu(f"no GPU: {error}") from error
        self._device = device
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        stream = ctypes.c_void_p()
        self._call("cuStreamCreate", ctypes.byref(stream), ctypes.c_uint(_NON_BLOCKING))
        self._stream = stream

    def described(self) -> dict[str, Any]:
        """Name, compute capability, multiprocessors and the driver's CUDA version."""
        name, version = ctypes.create_string_buffer(256), ctypes.c_int()
        self._call("cuDeviceGetName", name, ctypes.c_int(256), self._device)
        self._call("cuDriverGetVersion", ctypes.byref(version))
        return {
            "name": name.value.decode(errors="replace"),
            "capability": f"{self._attribute(_MAJOR)}.{self._attribute(_MINOR)}",
            "multiprocessors": self._attribute(_MULTIPROCESSORS),
            "cuda": f"{version.value // 1000}.{version.value % 1000 // 10}",
        }

    def free_bytes(self) -> int:
        """Memory of the GPU that nobody has taken."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def uploaded(self, array: np.ndarray) -> int:
        """The address of a copy of an array."""
        address = ctypes.c_uint64()
        array = np.ascontiguousarray(array)
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(1, array.nbytes)))
        pointer = ctypes.c_void_p(array.ctypes.data)
        self._call("cuMemcpyHtoDAsync_v2", address, pointer, ctypes.c_size_t(array.nbytes), self._stream)
        self.wait()
        return address.value

    def downloaded(self, address: int, like: np.ndarray) -> np.ndarray:
        """What lies at an address, in the shape and type of `like`."""
        array = np.empty_like(like, order="C")
        pointer, size = ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes)
        self._call("cuMemcpyDtoHAsync_v2", pointer, ctypes.c_uint64(address), size, self._stream)
        self.wait()
        return array

    def release(self, address: int) -> None:
        """Give memory back."""
        self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def module(self, cubin: bytes) -> int:
        """Load a cubin; it stays loaded until `unload`."""
        module = ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(cubin))
        return int(module.value or 0)

    def unload(self, module: int) -> None:
        """Give a module back."""
        self._call("cuModuleUnload", ctypes.c_void_p(module))

    def function(self, module: int, name: str) -> int:
        """A kernel of a module."""
        function = ctypes.c_void_p()
        self._call(
            "cuModuleGetFunction",
            ctypes.byref(function),
            ctypes.c_void_p(module),
            ctypes.c_char_p(name.encode()),
        )
        return int(function.value or 0)

    def launch(self, launches: Sequence[Launch]) -> None:
        """Start kernels one after the other."""
        for one in launches:
            values = [ctypes.c_uint64(address) for address in one.addresses]
            pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
            sizes = [ctypes.c_uint(size) for size in (*one.blocks, *one.threads)]
            shared = ctypes.c_uint(one.shared_bytes)
            function = ctypes.c_void_p(one.function)
            if one.shared_bytes > _USUAL_SHARED_BYTES:
                size = ctypes.c_int(one.shared_bytes)
                self._call("cuFuncSetAttribute", function, ctypes.c_int(_DYNAMIC_SHARED), size)
            self._call("cuLaunchKernel", function, *sizes, shared, self._stream, pointers, None)

    def wait(self) -> None:
        """Until everything that was started has ended."""
        self._call("cuStreamSynchronize", self._stream)

    def seconds(self, launches: Sequence[Launch]) -> list[float]:
        """Seconds of one call of all the launches, by the GPU's clock, in several samples."""
        with self.sampled(launches) as sampler:
            return [sampler.take() for _ in range(sampler.samples)]

    @contextmanager
    def sampled(self, launches: Sequence[Launch]) -> Iterator[Sampler]:
        """Samples of one call of all the launches, whenever one is asked for.

        Calls are repeated inside of one CUDA graph, so that the time to start them does not count. Caches
        stay warm.
        """
        self.launch(launches)
        self.wait()
        first = self._elapsed(lambda: self.launch(launches))
        if first > _LONG_S:
            yield Sampler(lambda: first, 1)
            return
        calls = max(1, min(_MOST_CALLS, math.ceil(SAMPLE_S / max(first, 1e-6))))
        graph = self._captured(launches, calls)
        try:
            replay = ctypes.c_void_p(graph)
            self._call("cuGraphLaunch", replay, self._stream)
            self.wait()
            yield Sampler(
                lambda: self._elapsed(lambda: self._call("cuGraphLaunch", replay, self._stream)) / calls,
                SAMPLES,
            )
        finally:
            self._call("cuGraphExecDestroy", ctypes.c_void_p(graph))

    def _captured(self, launches: Sequence[Launch], calls: int) -> int:
        graph, replay = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuStreamBeginCapture_v2", self._stream, ctypes.c_int(_THREAD_LOCAL))
        try:
            for _ in range(calls):
                self.launch(launches)
        finally:
            # Also where a launch is refused: nothing else could be done with the stream otherwise.
            self._call("cuStreamEndCapture", self._stream, ctypes.byref(graph))
        self._call("cuGraphInstantiateWithFlags", ctypes.byref(replay), graph, ctypes.c_ulonglong(0))
        self._call("cuGraphDestroy", graph)
        return int(replay.value or 0)

    def _elapsed(self, work: Callable[[], None]) -> float:
        events = [ctypes.c_void_p(), ctypes.c_void_p()]
        for event in events:
            self._call("cuEventCreate", ctypes.byref(event), ctypes.c_uint(0))
        self._call("cuEventRecord", events[0], self._stream)
        work()
        self._call("cuEventRecord", events[1], self._stream)
        self._call("cuEventSynchronize", events[1])
        milliseconds = ctypes.c_float()
        self._call("cuEventElapsedTime", ctypes.byref(milliseconds), *events)
        for event in events:
            self._call("cuEventDestroy_v2", event)
        return milliseconds.value * 1e-3

    def _attribute(self, number: int) -> int:
        value = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(number), self._device)
        return value.value

    def _call(self, name: str, *arguments: object) -> None:
        try:
            function = getattr(self._library, name)
        except AttributeError as error:
            raise DriverError(f"this driver has no {name}") from error
        code = function(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._library.cuGetErrorName(code, ctypes.byref(text))
            raise DriverError(f"{name}: {(text.value or b'error %d' % code).decode()}")


def median(seconds: Sequence[float]) -> float:
    """The middle sample."""
    return statistics.median(seconds)
