"""Tensors of a GPU in memory that it shares with the processor, where the board has one memory for both.

There the processor writes inputs and reads outputs in place, and what functions of either processor give to
the other one is not copied. The driver says whether the GPU is part of the processor's chip. Where it has
memory of its own, the same functions give tensors of each memory and copy between them.

Memory of this kind is not kept in the caches of a Jetson's GPU (NVIDIA, "CUDA for Tegra", memory types), so
only what both processors use lies in it. The processor must wait for the GPU before it reads.

Source of the functions: CUDA Runtime API (memory management, device attributes).
"""

from __future__ import annotations

import ctypes
import functools
import threading
from typing import Any, Dict, List, Optional, Sequence, Tuple

from device_agent.contract.text import printable
from device_agent.errors import AgentError
from device_agent.execute import ffi
from device_agent.wire.frames import tensor_bytes

# What compiled models call: see host/build/memory/crossings.py.
TENSOR, BESIDE, CROSS = "vm.builtin.edgetlm_tensor", "vm.builtin.edgetlm_beside", "edgetlm.cross"
# Free blocks that are kept, at most, and the step in size of those that are larger.
_MOST_FREE_BYTES, _STEP, _PAGE = 64 << 20, 1 << 20, 4096
# cudaDevAttrIntegrated, cudaDevAttrCanMapHostMemory, cudaHostAllocMapped.
_INTEGRATED, _CAN_MAP, _MAPPED = 18, 19, 2
_GPU = 2


class CudaRuntime:
    """The functions of the CUDA runtime library that TVM has loaded."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(ffi.library_path("libcudart.so.13"))
        self._library.cudaGetErrorString.restype = ctypes.c_char_p

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function.

        Raises:
            AgentError: the driver refuses; the message has its words.
        """
        code = getattr(self._library, name)(*arguments)
        if code != 0:
            # The library keeps the error of a thread until somebody asks for it.
            self._library.cudaGetLastError()
            text = self._library.cudaGetErrorString(code) or b"unknown error"
            raise AgentError("engine", "CUDA: %s: %s" % (name, printable(text.decode("utf-8", "replace"))))

    def release(self, name: str, *arguments: Any) -> None:
        """Frees something. Errors are left alone: with the process the driver frees everything."""
        if getattr(self._library, name)(*arguments) != 0:
            self._library.cudaGetLastError()


class _Block:
    """Shared memory that is given back when nothing refers to it any more."""

    def __init__(self, memory: "_SharedMemory", size: int, host: int, of_gpu: int) -> None:
        self._memory, self.size, self.host, self.of_gpu = memory, size, host, of_gpu

    def __del__(self) -> None:
        self._memory.give_back(self.size, self.host, self.of_gpu)


class _SharedMemory:
    """Blocks of memory that a GPU shares with the processor.

    Attributes:
        usable: whether the driver has such memory and the GPU none of its own.
    """

    def __init__(self) -> None:
        ffi.load_cuda()
        self._runtime = CudaRuntime()
        self.usable = bool(self._attribute(_INTEGRATED) and self._attribute(_CAN_MAP))
        # Size and addresses of blocks, those that were given back last at the end. Allocating takes the
        # driver long, and who runs without graphs does so in every run.
        self._free: List[Tuple[int, int, int]] = []
        # Given back, but the GPU may still be at work with them.
        self._pending: List[Tuple[int, int, int]] = []
        self._used: Dict[int, int] = {}
        # The garbage collector may give a block back in a thread that holds the lock.
        self._lock = threading.RLock()

    def take(self, size: int) -> _Block:
        """A block of `size` bytes or more.

        Raises:
            AgentError: the driver has no memory left.
        """
        size = _size_of_block(size)
        with self._lock:
            index = next((i for i in reversed(range(len(self._free))) if self._free[i][0] == size), None)
            place = None if index is None else self._free.pop(index)[1:]
        if place is None:
            host, of_gpu = ctypes.c_void_p(), ctypes.c_void_p()
            self._runtime.call(
                "cudaHostAlloc", ctypes.byref(host), ctypes.c_size_t(size), ctypes.c_uint(_MAPPED)
            )
            self._runtime.call("cudaHostGetDevicePointer", ctypes.byref(of_gpu), host, ctypes.c_uint(0))
            place = int(host.value or 0), int(of_gpu.value or 0)
        with self._lock:
            self._used[place[1]] = place[0]
        return _Block(self, size, *place)

    def give_back(self, size: int, host: int, of_gpu: int) -> None:
        """Takes a block back. It is free for others once somebody has waited for the GPU."""
        with self._lock:
            self._used.pop(of_gpu, None)
            self._pending.append((size, host, of_gpu))

    def synchronise(self) -> None:
        """Waits for the GPU. What was given back before is free then, and too much of it goes to the driver.

        Where the GPU has failed, its memory is lost with everything else of it.
        """
        with self._lock:
            done, self._pending = self._pending, []
        ffi.synchronise(ffi.load_cuda())
        with self._lock:
            self._free += done
            total, count = sum(size for size, _, _ in self._free), 0
            while total > _MOST_FREE_BYTES:
                total -= self._free[count][0]
                count += 1
            oldest, self._free = self._free[:count], self._free[count:]
        for _, host, _ in oldest:
            self._runtime.release("cudaFreeHost", ctypes.c_void_p(host))

    def host_address(self, tensor: Any) -> Optional[int]:
        """Where the processor finds a tensor of the GPU; None if that lies in the GPU's own memory."""
        with self._lock:
            return self._used.get(int(tensor.data_ptr()))

    def _attribute(self, number: int) -> int:
        value = ctypes.c_int()
        self._runtime.call("cudaDeviceGetAttribute", ctypes.byref(value), number, 0)
        return value.value


def _size_of_block(size: int) -> int:
    """The size of the block for `size` bytes: lengths of a range have many sizes, and few blocks."""
    step = min(_STEP, max(_PAGE, 1 << (size - 1).bit_length()))
    return -(-size // step) * step


@functools.lru_cache(maxsize=None)
def _memory() -> _SharedMemory:
    return _SharedMemory()


def is_shared() -> bool:
    """Whether the GPU has no memory of its own and takes the processor's.

    Raises:
        AgentError: there is no GPU.
    """
    return _memory().usable


def tensor(shape: Sequence[int], dtype: Any) -> Any:
    """An uninitialised tensor of the GPU that the processor uses too."""
    sizes, kind = tuple(int(size) for size in shape), str(dtype)
    size = tensor_bytes(sizes, kind)
    if size == 0 or not _memory().usable:
        return ffi.empty(sizes, kind, ffi.load_cuda())
    block = _memory().take(size)
    return ffi.view_of(block.of_gpu, sizes, kind, block, _GPU)


def beside(of_gpu: Any) -> Any:
    """The processor's tensor to one of the GPU: in the same memory if both share it, else a new one."""
    sizes, kind = tuple(int(size) for size in of_gpu.shape), str(of_gpu.dtype)
    address = _memory().host_address(of_gpu)
    if address is None:
        return ffi.empty(sizes, kind)
    # The tensor of the GPU keeps the memory.
    return ffi.view_of(address, sizes, kind, of_gpu)


def cross(source: Any, target: Any) -> None:
    """Makes what one processor has written readable for the other one.

    Args:
        source: the tensor that was written.
        target: the tensor of the other processor, from `beside` or what `beside` was asked for.
    """
    from_gpu = source.device.dlpack_device_type() == _GPU
    if _memory().host_address(source if from_gpu else target) is None:
        ffi.copy(source, target)
    elif from_gpu:
        synchronise()


def synchronise() -> None:
    """Waits until the GPU has completed all its work."""
    _memory().synchronise()


@functools.lru_cache(maxsize=None)
def offer() -> None:
    """Makes the functions known to TVM's virtual machine, under the names that compiled models call."""
    register = ffi.load_runtime().register_global_func
    for name, function in ((TENSOR, tensor), (BESIDE, beside), (CROSS, cross)):
        register(name, function)
