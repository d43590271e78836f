"""Arrays in files of NumPy keep types that NumPy lacks, and nothing else changes its type."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from device_agent.contract.limits import LIMITS
from device_agent.contract.tensors import numpy_type, with_type, without_type


def through_file(array: np.ndarray, path: Path) -> np.ndarray:
    np.savez(path, one=without_type(array))
    with np.load(path, allow_pickle=False) as archive:
        return archive["one"]


@pytest.mark.parametrize("name", LIMITS.item_bytes)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_every_type_of_the_contract_is_kept(name: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    array = np.arange(np.prod(shape)).reshape(shape).astype(numpy_type(name))
    found = with_type(through_file(array, tmp_path / "a.npz"), name)
    assert (str(found.dtype), found.shape, found.tobytes()) == (name, shape, array.tobytes())


def test_types_outside_of_the_contract_are_kept_as_bytes(tmp_path: Path) -> None:
    """NumPy writes float8_e5m2 under a name that it does not read."""
    found = through_file(np.ones(3).astype(ml_dtypes.float8_e5m2), tmp_path / "a.npz")
    assert found.dtype == np.dtype("V1") and found.shape == (3,)
    assert with_type(found, "float8_e5m2") is found


def test_columns_that_do_not_lie_side_by_side() -> None:
    array = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(with_type(without_type(array.T), "bfloat16"), array.T)


@pytest.mark.parametrize(
    ("array", "name"),
    [
        (np.zeros(2, "V1"), "bool"),  # a byte of 2 would be no truth value
        (np.zeros(2, "V2"), "float16"),
        (np.zeros(2, "V4"), "bfloat16"),
        (np.zeros(2, "V2"), "no_type"),
        (np.zeros(2, "V2"), "__doc__"),
        (np.zeros(2, "f4"), "bfloat16"),
        (np.zeros(2, "u2"), "bfloat16"),
        (np.zeros(2, [("a", "u1"), ("b", "u1")]), "bfloat16"),
    ],
)
def test_other_elements_are_not_seen_as_something_else(array: np.ndarray, name: str) -> None:
    assert with_type(array, name) is array


@pytest.mark.parametrize("name", ["finfo", "bfloat17", "__doc__"])
def test_other_names_of_the_library_are_no_types(name: str) -> None:
    with pytest.raises(TypeError):
        numpy_type(name)
