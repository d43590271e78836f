"""Addresses at which a GPU faults: vectors that are not aligned, and what lies outside of the tensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cuda_emulator.run import run_source

_THREADS = (32, 1, 1)
_COPY = r"""
static __device__ __forceinline__ void store_four(void* place, const float4* four) {
  *reinterpret_cast<float4*>(static_cast<char*>(place) + 0) = *four;
}
extern "C" __global__ void copied(float* __restrict__ from, float* __restrict__ to) {
  float four[4];
  *(float4*)(four + 0) = *(float4*)(from + (((int)threadIdx.x) * 4) + READ);
  store_four(to + (((int)threadIdx.x) * 4) + WRITTEN, (const float4*)four);
}
"""


def _copied(read: int, written: int, folder: Path) -> np.ndarray:
    """A copy of 128 numbers, 4 at a time, that is read and written some numbers too far."""
    source, found = np.arange(132, dtype="float32"), np.zeros(132, "float32")
    text = _COPY.replace("READ", str(read)).replace("WRITTEN", str(written))
    run_source(text, [source, found], (1, 1, 1), _THREADS, folder)
    return found


def test_vectors_at_multiples_of_their_size(tmp_path: Path) -> None:
    assert _copied(4, 0, tmp_path).tolist() == [*range(4, 132), *[0] * 4]


@pytest.mark.parametrize(("read", "written"), [(1, 0), (0, 2)])
def test_vectors_that_are_not_aligned_are_refused(read: int, written: int, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="not aligned"):
        _copied(read, written, tmp_path)


@pytest.mark.parametrize(("read", "written"), [(8, 0), (0, 8), (-(1 << 10), 0)])
def test_what_lies_outside_of_the_tensors_is_refused(read: int, written: int, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="outside of the tensors"):
        _copied(read, written, tmp_path)


def test_a_kernel_runs_after_one_that_was_given_up(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="outside of the tensors"):
        _copied(8, 0, tmp_path)
    assert _copied(0, 0, tmp_path)[:128].tolist() == list(range(128))
