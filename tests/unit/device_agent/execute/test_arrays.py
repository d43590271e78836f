"""Elements that NumPy has are engines' inputs; those of another library are refused by name."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from device_agent.errors import AgentError
from device_agent.execute.engines.arrays import from_array, to_array
from device_agent.wire.frames import TensorData


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "float64"])
def test_arrays_come_back_as_they_went(dtype: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    found = to_array(from_array(array))
    assert found.dtype == array.dtype and found.flags.writeable
    np.testing.assert_array_equal(found, array)


def test_types_of_another_library_are_refused() -> None:
    # NumPy knows the name once that library is imported; engines still do not know the elements.
    assert np.dtype("bfloat16") == ml_dtypes.bfloat16
    for dtype in ("bfloat16", "float8_e5m2"):
        with pytest.raises(AgentError, match=f"takes no inputs of type {dtype}"):
            to_array(TensorData((1,), dtype, b"\0\0"))
