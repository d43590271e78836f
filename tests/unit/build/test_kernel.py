from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import s_tir, te

from host.build import KernelCache, build_kernel_library, compile_kernel
from host.build.elf import machine_of, undefined_symbols
from host.build.kernel import kernel_key, lower_function
from host.errors import BuildError
from tests.unit.build.conftest import Run

Scale = Callable[[float], tvm.tirx.PrimFunc]


def test_result_is_right(run: Run, scale: Scale) -> None:
    source = np.arange(64, dtype="float32")
    np.testing.assert_array_equal(run(scale(3.0), source), source * 3)


def test_second_compile_comes_from_the_cache(
    scale: Scale, target: tvm.target.Target, cache: KernelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = compile_kernel(scale(2.0), "first", target, cache)
    assert not first.from_cache
    monkeypatch.setattr("host.build.kernel.compile_function", None)  # compiling again would fail
    second = compile_kernel(scale(2.0), "other_name", target, KernelCache(cache.folder))
    assert second.from_cache
    assert (second.key, second.symbol, second.content) == (first.key, first.symbol, first.content)


def test_damaged_cache_entry_is_compiled_again(
    scale: Scale, target: tvm.target.Target, cache: KernelCache
) -> None:
    first = compile_kernel(scale(2.0), "kernel", target, cache)
    (path,) = cache.folder.glob("*/*")
    path.write_bytes(path.read_bytes()[:-100])
    again = compile_kernel(scale(2.0), "kernel", target, cache)
    assert not again.from_cache
    assert again.content == first.content
    assert compile_kernel(scale(2.0), "kernel", target, cache).from_cache


def test_key_tells_apart_what_compiles_differently(scale: Scale, target: tvm.target.Target) -> None:
    function = scale(2.0)
    scheduled = s_tir.Schedule(function)
    scheduled.vectorize(scheduled.split(scheduled.get_loops(scheduled.get_sblock("scaled"))[0], [None, 4])[1])
    other = tvm.target.Target({**target.export(), "mattr": ["+avx2"]})
    keys = {
        kernel_key(function, target),
        kernel_key(scale(4.0), target),
        kernel_key(scheduled.mod["main"], target),
        kernel_key(function, other),
    }
    assert len(keys) == 4
    assert kernel_key(function.with_attr("global_symbol", "renamed"), target) in keys


def test_object_defines_one_function_and_needs_only_the_runtime(
    scale: Scale, target: tvm.target.Target
) -> None:
    kernel = compile_kernel(scale(2.0), "kernel", target)
    assert machine_of(kernel.content) == str(target.attrs["mtriple"]).split("-")[0]
    assert b"__tvm_ffi_" + kernel.symbol.encode() in kernel.content
    assert b"__tvm_ffi_main" not in kernel.content
    assert all(name.startswith("TVM") for name in undefined_symbols(kernel.content))


def test_a_function_that_does_not_compile_is_named(target: tvm.target.Target, scale: Scale) -> None:
    schedule = s_tir.Schedule(scale(2.0))
    schedule.bind(schedule.get_loops(schedule.get_sblock("scaled"))[0], "threadIdx.x")
    with pytest.raises(BuildError, match=r"^kernel gpu_only: ") as caught:
        compile_kernel(schedule.mod["main"], "gpu_only", target)
    assert "\n" not in str(caught.value)


def test_multiply_and_add_are_fused() -> None:
    source = te.placeholder((64,), name="source")
    function = te.create_prim_func([source, te.compute((64,), lambda i: source[i] * 3.0 + 1.0)])
    target = tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "x86-64-v3"})
    build = tvm.get_global_func("target.build.llvm")
    assembly = build(lower_function(function, "kernel", target), target).inspect_source("s")
    assert "vfmadd" in assembly


MISALIGNED = """
import sys
import numpy as np
import host.execution.without_torch
import tvm
import tvm_ffi
module = tvm.runtime.load_module(sys.argv[1])
room = np.arange(65, dtype="float32")
offset = 0 if room.ctypes.data % 16 else 1
source = room[offset : offset + 64]
assert source.ctypes.data % 16
result = np.zeros(65, "float32")[1:]
module["kernel"](tvm_ffi.from_dlpack(source), tvm_ffi.from_dlpack(result))
np.testing.assert_array_equal(result, source * 2)
"""


def test_arguments_may_lie_anywhere(tmp_path: Path, target: tvm.target.Target, scale: Scale) -> None:
    library = build_kernel_library({"kernel": scale(2.0)}, tmp_path / "kernel.so", target)
    # In a process of its own: a wrong assumption does not raise but kills.
    subprocess.run([sys.executable, "-c", MISALIGNED, str(library)], check=True, timeout=120)


def test_sums_of_a_register_tile_stay_off_the_heap() -> None:
    """Sixteen vectors of AVX-512 are 1 KB, which TVM takes from the heap; each step then stores them."""

    def tile(rows: int, scope: str) -> tvm.tirx.PrimFunc:
        a = te.placeholder((64 * rows, 32), "float32", "a")
        b = te.placeholder((32, 16), "float32", "b")
        k = te.reduce_axis((0, 32), "k")
        c = te.compute((64 * rows, 16), lambda i, j: te.sum(a[i, k] * b[k, j], k), "c")
        schedule = s_tir.Schedule(te.create_prim_func([a, b, c]))
        block = schedule.get_sblock("c")
        copy = schedule.cache_write(block, 0, scope)
        i, j, depth = schedule.get_loops(block)
        outer, inner = schedule.split(i, [None, rows])
        schedule.reorder(outer, depth, inner, j)
        schedule.reverse_compute_at(copy, outer)
        schedule.parallel(outer)
        return schedule.mod["main"]

    target = tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "x86-64-v4"})

    def taken_from_the_heap(function: tvm.tirx.PrimFunc) -> bool:
        return "TVMBackendAllocWorkspace" in str(lower_function(function, "kernel", target))

    assert not taken_from_the_heap(tile(16, "local"))
    assert not taken_from_the_heap(tile(32, "local"))
    assert taken_from_the_heap(tile(128, "local")), "a stack is small on some boards"
    assert taken_from_the_heap(tile(16, "global"))
