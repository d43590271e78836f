"""Tensors of a GPU in one allocation.

A driver gives memory in whole pages, 2 MiB each where much is asked for. Weights that are allocated one by
one take as much more as is left of their last pages, which for models of many layers is a large share.
"""

from __future__ import annotations

from typing import Any, List, Sequence

from device_agent.execute import ffi
from device_agent.wire.frames import tensor_bytes

# Where allocations of a driver begin: at multiples of 256 bytes. Kernels load whole lines of 128.
_ALIGNMENT = 256
_GPU = 2


def copied(tensors: Sequence[Any], device: Any) -> List[Any]:
    """Copies of tensors of the processor on a GPU, side by side; they are made when this returns.

    Args:
        tensors: contiguous ones.
        device: the GPU, as a device of TVM.
    """
    if not tensors:
        return []
    described = [(tuple(int(size) for size in tensor.shape), str(tensor.dtype)) for tensor in tensors]
    places = [0]
    for shape, dtype in described:
        places.append(places[-1] + -(-tensor_bytes(shape, dtype) // _ALIGNMENT) * _ALIGNMENT)
    block = ffi.empty((places[-1],), "uint8", device)
    begin = int(block.data_ptr())
    copies = [
        ffi.view_of(begin + place, shape, dtype, block, _GPU)
        for (shape, dtype), place in zip(described, places)
    ]
    for tensor, copy in zip(tensors, copies):
        ffi.copy(tensor, copy)
    # Copies are asynchronous: what they read must stay valid until they have been made.
    ffi.synchronise(device)
    return copies
