"""Memory of a CUDA GPU through the driver, for engines that need addresses. Uses only the standard library.

Source of the functions: CUDA Driver API (memory and stream management).
"""

from __future__ import annotations

import ctypes
from typing import Any, List

from device_agent.errors import AgentError


class CudaMemory:
    """Buffers and one stream in the GPU's primary context.

    Attributes:
        gpu: its name, as the driver has it.
        stream: handle of the stream.

    Raises:
        AgentError: there is no driver, no GPU, or no memory.
    """

    def __init__(self) -> None:
        try:
            self._driver = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise AgentError("engine", "there is no NVIDIA driver on this device: %s" % error) from error
        self._check(self._driver.cuInit(0), "start")
        device, context, stream = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self._check(self._driver.cuDeviceGet(ctypes.byref(device), 0), "device")
        name = ctypes.create_string_buffer(256)
        self._check(self._driver.cuDeviceGetName(name, ctypes.c_int(len(name)), device), "name of the device")
        self.gpu = name.value.decode("utf-8", "replace")
        self._check(self._driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "context")
        self._check(self._driver.cuCtxSetCurrent(context), "context")
        self._check(self._driver.cuStreamCreate(ctypes.byref(stream), 0), "stream")
        self._buffers: List[int] = []
        self.stream: int = stream.value or 0

    def allocate(self, size: int) -> int:
        """Allocates a buffer of `size` bytes and returns its address."""
        address = ctypes.c_uint64()
        self._check(
            self._driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(max(1, size))), "memory"
        )
        self._buffers.append(address.value)
        return int(address.value)

    def write(self, address: int, data: bytes) -> None:
        """Copies bytes to the GPU."""
        size, stream = ctypes.c_size_t(len(data)), ctypes.c_void_p(self.stream)
        self._check(
            self._driver.cuMemcpyHtoDAsync_v2(ctypes.c_uint64(address), data, size, stream), "copy to the GPU"
        )
        self.synchronise()

    def read(self, address: int, size: int) -> bytes:
        """Copies bytes from the GPU."""
        data = ctypes.create_string_buffer(size)
        stream = ctypes.c_void_p(self.stream)
        self._check(
            self._driver.cuMemcpyDtoHAsync_v2(data, ctypes.c_uint64(address), ctypes.c_size_t(size), stream),
            "copy from the GPU",
        )
        self.synchronise()
        return data.raw

    def synchronise(self) -> None:
        """Waits for all work on the stream."""
        self._check(self._driver.cuStreamSynchronize(ctypes.c_void_p(self.stream)), "work")

    def free(self) -> None:
        """Frees all buffers that this object allocated."""
        for address in self._buffers:
            self._driver.cuMemFree_v2(ctypes.c_uint64(address))
        self._buffers = []

    @staticmethod
    def _check(code: Any, what: str) -> None:
        if code != 0:
            raise AgentError("engine", "CUDA: %s failed with error %d" % (what, code))
