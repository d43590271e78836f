"""PTX instructions as this machine carries them out, against the tables of the PTX ISA and NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cuda_emulator.inline_ptx import translated
from tests.cuda_emulator.run import run_source

_THREADS = (32, 1, 1)

_PRODUCT = r"""
extern "C" __global__ void product(unsigned* __restrict__ a, unsigned* __restrict__ b,
                                   %(sum)s* __restrict__ c) {
  const int lane = threadIdx.x;
  %(sum)s d[4] = {1, 2, 3, 4};
  asm volatile("mma.sync.aligned.m16n8k%(depth)d.row.col.%(name)s {%%0, %%1, %%2, %%3}, "
               "{%(a_names)s}, {%(b_names)s}, {%%0, %%1, %%2, %%3};\n"
               : "+%(letter)s"(d[0]), "+%(letter)s"(d[1]), "+%(letter)s"(d[2]), "+%(letter)s"(d[3])
               : %(a_given)s, %(b_given)s);
  for (int n = 0; n < 4; ++n) c[lane * 4 + n] = d[n];
}
"""


def _product_source(depth: int, types: str, total: str, lefts: int, rights: int) -> str:
    def names(start: int, count: int) -> str:
        return ", ".join(f"%{start + n}" for n in range(count))

    def given(array: str, count: int) -> str:
        return ", ".join(f'"r"({array}[lane * {count} + {n}])' for n in range(count))

    return _PRODUCT % {
        "depth": depth,
        "name": types,
        "sum": total,
        "letter": "f" if total == "float" else "r",
        "a_names": names(4, lefts),
        "b_names": names(4 + lefts, rights),
        "a_given": given("a", lefts),
        "b_given": given("b", rights),
    }


@pytest.mark.parametrize(
    ("depth", "kind", "types"),
    [
        (8, "float16", "f32.f16.f16.f32"),
        (16, "float16", "f32.f16.f16.f32"),
        (16, "int8", "s32.s8.s8.s32"),
        (32, "int8", "s32.s8.s8.s32"),
    ],
)
def test_product_of_a_warp(depth: int, kind: str, types: str, tmp_path: Path) -> None:
    generator = np.random.default_rng(depth)
    left = generator.integers(-9, 10, (16, depth)).astype(kind)
    right = generator.integers(-9, 10, (depth, 8)).astype(kind)
    packed = 4 // left.itemsize
    # Figures of the PTX ISA, "Matrix Fragments": row and column of each element by group and thread in group.
    a = np.zeros((32, 16 * depth // 32), kind)
    b = np.zeros((32, 8 * depth // 32), kind)
    for lane in range(32):
        group, inside = divmod(lane, 4)
        for n in range(a.shape[1]):
            register, part = divmod(n, packed)
            row = group + (8 if register % 2 else 0)
            a[lane, n] = left[row, inside * packed + part + (4 * packed if register >= 2 else 0)]
        for n in range(b.shape[1]):
            register, part = divmod(n, packed)
            b[lane, n] = right[inside * packed + part + 4 * packed * register, group]
    total = "float" if types.startswith("f32") else "int"
    sums = np.zeros((32, 4), "float32" if total == "float" else "int32")
    source = _product_source(depth, types, total, a.nbytes // 128, b.nbytes // 128)
    counters = run_source(source, [a.view("uint32"), b.view("uint32"), sums], (1, 1, 1), _THREADS, tmp_path)
    assert counters.products == 1
    wanted = left.astype("float64") @ right.astype("float64")
    for lane in range(32):
        group, inside = divmod(lane, 4)
        for n in range(4):
            assert sums[lane, n] == wanted[group + 8 * (n // 2), inside * 2 + n % 2] + n + 1


_LOAD = r"""
extern "C" __global__ void load(unsigned short* __restrict__ from, unsigned* __restrict__ to) {
  __shared__ alignas(128) unsigned short tile[32 * %(pitch)d];
  const int lane = threadIdx.x;
  for (int column = 0; column < 8; ++column) tile[lane * %(pitch)d + column] = from[lane * 8 + column];
  __syncthreads();
  unsigned address = __cvta_generic_to_shared(&tile[lane * %(pitch)d]), r[4];
  asm volatile("ldmatrix.sync.aligned.m8n8.x4%(way)s.shared.b16 {%%0, %%1, %%2, %%3}, [%%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address));
  for (int n = 0; n < 4; ++n) to[lane * 4 + n] = r[n];
}
"""


@pytest.mark.parametrize(("pitch", "conflicts"), [(8, 0), (16, 4), (32, 4 * 3), (64, 4 * 7), (72, 0)])
@pytest.mark.parametrize("way", ["", ".trans"])
def test_load_of_matrices(way: str, pitch: int, conflicts: int, tmp_path: Path) -> None:
    matrices = np.arange(4 * 8 * 8, dtype="uint16").reshape(4, 8, 8)
    found = np.zeros((32, 4, 2), "uint16")
    source = _LOAD % {"pitch": pitch, "way": way}
    counters = run_source(source, [matrices, found.view("uint32")], (1, 1, 1), _THREADS, tmp_path)
    wanted = matrices.transpose(0, 2, 1) if way else matrices
    for lane in range(32):
        for matrix in range(4):
            row, column = lane // 4, lane % 4 * 2
            assert found[lane, matrix].tolist() == wanted[matrix, row, column : column + 2].tolist()
    assert (counters.matrix_loads, counters.load_conflicts) == (4, conflicts)


# Two warps each copy half of a tile in two groups, and read what the other one copied.
_COPIES = r"""
extern "C" __global__ void copies(float* __restrict__ from, float* __restrict__ to) {
  __shared__ alignas(128) float tile[512];
  const int thread = threadIdx.x, other = (thread + 32) %% 64;
  for (int group = 0; group < 2; ++group) {
    unsigned address = __cvta_generic_to_shared(&tile[group * 256 + thread * 4]);
    asm volatile("cp.async.cg.shared.global [%%0], [%%1], %%2, %%3;"
                 :: "r"(address), "l"((void*)(from + group * 256 + thread * 4)), "n"(16), "r"(%(given)s));
    asm volatile("cp.async.commit_group;");
  }
  %(first_wait)s
  %(barrier)s
  for (int n = 0; n < 4; ++n) to[thread * 4 + n] = tile[other * 4 + n];
  asm volatile("cp.async.wait_group 0;");
  __syncthreads();
  for (int n = 0; n < 4; ++n) to[256 + thread * 4 + n] = tile[256 + other * 4 + n];
}
"""
_WAIT, _BARRIER = 'asm volatile("cp.async.wait_group %0;" :: "n"(1));', "__syncthreads();"


def _copies(
    tmp_path: Path, first_wait: str = _WAIT, barrier: str = _BARRIER, given: str = "16"
) -> np.ndarray:
    source = np.arange(512, dtype="float32") + 1
    found = np.zeros(512, "float32")
    text = _COPIES % {"first_wait": first_wait, "barrier": barrier, "given": given}
    counters = run_source(text, [source, found], (2, 1, 1), (64, 1, 1), tmp_path)
    assert counters.copy_conflicts == 0
    return found.reshape(2, 2, 128)[:, ::-1].reshape(512)


def test_copies_arrive_by_the_wait_for_their_group(tmp_path: Path) -> None:
    assert _copies(tmp_path).tolist() == list(range(1, 513))


def test_copies_without_a_wait_have_not_arrived(tmp_path: Path) -> None:
    found = _copies(tmp_path, first_wait="")
    assert np.isnan(found[:256]).sum() == 128, "a warp that comes later finds what the other one waited for"
    assert found[256:].tolist() == list(range(257, 513))


def test_copies_without_a_barrier_are_not_seen_by_every_warp(tmp_path: Path) -> None:
    assert np.isnan(_copies(tmp_path, barrier="")[:256]).any()


def test_copies_fill_with_zeros_what_they_do_not_read(tmp_path: Path) -> None:
    found = _copies(tmp_path, given="thread == 5 ? 4 : 16").reshape(128, 4)
    assert found[5].tolist() == [21, 0, 0, 0]
    assert found[64 + 5].tolist() == [256 + 21, 0, 0, 0]
    assert found[6].tolist() == [25, 26, 27, 28]


def test_predicated_copies_and_stores(tmp_path: Path) -> None:
    text = r"""
extern "C" __global__ void predicated(float* __restrict__ from, float* __restrict__ to) {
  __shared__ alignas(128) float tile[128];
  const int thread = threadIdx.x;
  unsigned address = __cvta_generic_to_shared(tile + thread * 4);
  __asm__ __volatile__(
      "{\n .reg .pred p;\n setp.ne.b32 p, %2, 0;\n"
      " @p cp.async.ca.shared.global [%0], [%1], 16;\n"
      " @!p st.shared.v4.u32 [%0], {%3, %4, %5, %6};\n}\n"
      :: "r"(address), "l"(from + thread * 4), "r"((int)(thread < 20)), "r"(0), "r"(0), "r"(0), "r"(0));
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();
  for (int n = 0; n < 4; ++n) to[thread * 4 + n] = tile[thread * 4 + n];
}
"""
    source, found = np.arange(128, dtype="float32") + 1, np.full(128, np.nan, "float32")
    run_source(text, [source, found], (1, 1, 1), _THREADS, tmp_path)
    assert found.tolist() == [*range(1, 81), *[0] * 48]


def test_misaligned_copies_are_refused(tmp_path: Path) -> None:
    text = _COPIES % {"first_wait": _WAIT, "barrier": _BARRIER, "given": "16"}
    with pytest.raises(AssertionError, match="not aligned"):
        arrays = [np.zeros(512, "float32"), np.zeros(512, "float32")]
        run_source(text.replace("thread * 4]", "thread * 4 + 1]", 1), arrays, (1, 1, 1), (64, 1, 1), tmp_path)


def test_instruction_that_a_part_of_the_warp_reaches(tmp_path: Path) -> None:
    text = (_LOAD % {"pitch": 8, "way": ""}).replace("asm volatile", "if (lane < 31) asm volatile")
    with pytest.raises(AssertionError, match="not reached by all of its threads"):
        run_source(text, [np.zeros(256, "uint16"), np.zeros(128, "uint32")], (1, 1, 1), _THREADS, tmp_path)


def test_shared_memory_of_a_launch(tmp_path: Path) -> None:
    text = r"""
extern "C" __global__ void launched(float* __restrict__ to) {
  extern __shared__ __align__(16) unsigned char buffer[];
  ((float*)buffer)[threadIdx.x] = 2.0f;
  __syncthreads();
  to[threadIdx.x] = ((float*)buffer)[31 - threadIdx.x];
}
"""
    found = np.zeros(32, "float32")
    run_source(text, [found], (1, 1, 1), _THREADS, tmp_path)
    assert (found == 2).all()


@pytest.mark.parametrize(("stride", "conflicts"), [(1, 0), (2, 1), (32, 31), (33, 0)])
def test_conflicts_of_loads_and_stores(stride: int, conflicts: int, tmp_path: Path) -> None:
    text = r"""
extern "C" __global__ void strided(float* __restrict__ to) {
  __shared__ alignas(64) float tile[1056];
  tile[threadIdx.x * STRIDE] = threadIdx.x;
  __syncthreads();
  *(float4*)(to + threadIdx.x * 4) = *(float4*)(tile + threadIdx.x * 4);
}
"""
    found = np.zeros(128, "float32")
    counters = run_source(text.replace("STRIDE", str(stride)), [found], (1, 1, 1), _THREADS, tmp_path)
    assert (counters.accesses, counters.access_conflicts) == (2, conflicts)


def test_unknown_instructions_are_errors() -> None:
    with pytest.raises(AssertionError, match=r"not emulated: wgmma\.fence"):
        translated('void f() { asm volatile("wgmma.fence.sync.aligned;"); }')
    with pytest.raises(AssertionError, match="no register: q"):
        translated('void f() { asm volatile("mov.u32 %0, q;" : "=r"(x)); }')


_ACCESSES = r"""
extern "C" __global__ void accesses(float* __restrict__ from, float* __restrict__ to) {
  __shared__ alignas(128) float tile[256];
  const int lane = threadIdx.x;
  for (int turn = 0; turn < 3; ++turn) {
    if (turn * 32 + lane < %(first)d || turn == 2) {
      tile[turn * 64 + lane * %(step)d] = from[lane];
    }
  }
  to[lane] = tile[128 + lane * %(step)d];
}
"""


@pytest.mark.parametrize(("first", "step", "conflicts"), [(40, 1, 0), (64, 1, 0), (40, 2, 3), (64, 2, 4)])
def test_conditions_do_not_shift_accesses(first: int, step: int, conflicts: int, tmp_path: Path) -> None:
    """Lanes that skip a turn of a loop take part in the next one: stores of all turns, then one load."""
    source, found = np.arange(32, dtype="float32"), np.zeros(32, "float32")
    text = _ACCESSES % {"first": first, "step": step}
    counters = run_source(text, [source, found], (1, 1, 1), _THREADS, tmp_path)
    assert found.tolist() == source.tolist()
    assert (counters.accesses, counters.access_conflicts) == (4, conflicts)
