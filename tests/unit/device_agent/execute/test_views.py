"""Memory of this process as tensors of the runtime, which parameters of a bundle are."""

from __future__ import annotations

import ctypes

import pytest

from device_agent.contract.limits import LIMITS
from device_agent.execute import ffi


@pytest.mark.parametrize("dtype", [*LIMITS.item_bytes, "float8_e5m2"])
def test_a_view_has_the_type_and_the_memory_of_its_owner(dtype: str) -> None:
    """Of every type of the contract, and of a type whose name does not end in its bits."""
    owner = (ctypes.c_char * 64)(*range(64))
    view = ffi.view_of(ctypes.addressof(owner), (2, 3), dtype, owner)
    assert (str(view.dtype), tuple(view.shape)) == (dtype, (2, 3))
    size = 6 * LIMITS.item_bytes.get(dtype, 1)
    assert bytes(ffi.to_bytes(view, size)) == bytes(range(size))
