from __future__ import annotations

import random
import re
from itertools import combinations

import numpy as np
import pytest
import tvm
from tvm import relax, s_tir, te

from host.build.cache import KernelCache
from host.build.kernel import compile_kernel, lower_function
from host.build.memory.offsets import Buffer, Layout, place
from host.build.memory.plan import ALIGNMENT, GPU_ALIGNMENT, is_whole, plan_memory, planned_bytes
from host.build.memory.workspace import Workspace, workspace_of
from host.build.model import lower_to_executable


def load(buffers: list[Buffer]) -> int:
    """The most bytes that are alive at any step: no block can be smaller."""
    steps = range(max(buffer.last for buffer in buffers) + 1)
    return max(sum(one.size_bytes for one in buffers if one.first <= step <= one.last) for step in steps)


def check(buffers: list[Buffer], layout: Layout, alignment: int) -> None:
    for buffer, offset in zip(buffers, layout.offsets, strict=True):
        assert offset % alignment == 0
        assert offset >= 0 and offset + buffer.size_bytes <= layout.size_bytes
    placed = list(zip(buffers, layout.offsets, strict=True))
    for (a, at), (b, bt) in combinations(placed, 2):
        together = a.first <= b.last and b.first <= a.last
        assert not together or at + a.size_bytes <= bt or bt + b.size_bytes <= at


@pytest.mark.parametrize("seed", range(20))
def test_buffers_that_are_alive_together_do_not_overlap(seed: int) -> None:
    generator = random.Random(seed)
    buffers = []
    for _ in range(generator.randint(1, 60)):
        first = generator.randint(0, 40)
        buffers.append(Buffer(generator.randint(1, 5000), first, first + generator.randint(0, 12)))
    check(buffers, place(buffers, 64), 64)


def test_a_chain_takes_its_two_largest_neighbours() -> None:
    sizes = [640, 6400, 1280, 640, 3200, 64]
    buffers = [Buffer(size, step, step + 1) for step, size in enumerate(sizes)]
    layout = place(buffers, 64)
    check(buffers, layout, 64)
    assert layout.size_bytes == 6400 + 1280 == load(buffers)


def test_a_gap_is_filled_before_the_block_grows() -> None:
    """Sharing buffers only whole would take 300 + 200 + 100: the two small ones follow the large one."""
    buffers = [Buffer(3000, 0, 1), Buffer(1000, 1, 3), Buffer(2000, 2, 4), Buffer(1000, 2, 3)]
    layout = place(buffers, 8)
    check(buffers, layout, 8)
    assert layout.size_bytes == load(buffers) == 4000


def test_no_buffers_take_no_memory() -> None:
    assert place([], 64) == Layout((), 0)


def branches(width: int = 64) -> tvm.IRModule:
    """Tensors of three sizes, two of them alive for long, and two outputs, one of which is a view."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((8, width), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            a = builder.emit(relax.op.exp(x))
            wide = builder.emit(relax.op.concat([a, a, x], axis=1))
            b = builder.emit(relax.op.sqrt(wide))
            narrow = builder.emit(relax.op.sum(b, axis=[1], keepdims=True))
            c = builder.emit(relax.op.add(a, narrow))
            flat = builder.emit(relax.op.reshape(c, (8 * width,)))
            d = builder.emit(relax.op.multiply(flat, flat))
            outputs = builder.emit_output((flat, d))
        builder.emit_func_output(outputs)
    return builder.get()


def lowered(module: tvm.IRModule) -> tvm.IRModule:
    transform = relax.transform
    steps = [
        transform.LegalizeOps(),
        transform.RewriteDataflowReshape(),
        transform.DeadCodeElimination(["main"]),
        transform.ToNonDataflow(),
        transform.RemovePurityChecking(),
        transform.CallTIRRewrite(),
    ]
    return tvm.transform.Sequential(steps)(module)


def test_the_block_is_no_larger_than_what_is_alive(target: tvm.target.Target) -> None:
    with target:
        module = lowered(branches())
        whole = planned_bytes(relax.transform.StaticPlanBlockMemory()(module))
        planned = planned_bytes(plan_memory(module))
    one = 8 * 64 * 4
    # `a` and two tensors of three times its size; outputs have memory of their own.
    assert planned == one + 2 * 3 * one
    assert planned <= whole


@pytest.mark.parametrize("alignment", [ALIGNMENT, GPU_ALIGNMENT])
def test_tensors_begin_at_multiples_of_a_line(target: tvm.target.Target, alignment: int) -> None:
    with target:
        text = plan_memory(lowered(branches(33)), alignment=alignment)["main"].script()
    offsets = [int(found) for found in re.findall(r"alloc_tensor\(activations, (\d+)", text)]
    assert len(offsets) == 4 and len(set(offsets)) == 3
    assert all(offset % alignment == 0 for offset in offsets)


def test_a_gpu_has_one_block_too() -> None:
    gpu = tvm.target.Target({"kind": "cuda", "arch": "sm_87"}, host="llvm")
    # Two tensors of 3168 bytes and one of 1056, at multiples of 256.
    assert lower_to_executable(branches(33), gpu).activations_bytes == 2 * 3328 + 1280


def test_what_a_model_returns_lies_outside_of_the_block(target: tvm.target.Target) -> None:
    with target:
        text = plan_memory(lowered(branches()))["main"].script()
    # `flat` is a view of `c`: both outputs are allocated by themselves.
    assert text.count("R.builtin.alloc_tensor") == 2
    assert text.count("R.memory.alloc_storage") == 1


def test_a_planned_model_computes_the_same(target: tvm.target.Target) -> None:
    module = branches()
    with target:
        executable = relax.build(module, target)
        machine = relax.VirtualMachine(executable, tvm.cpu())
    x = np.random.default_rng(0).uniform(0.1, 1.0, (8, 64)).astype("float32")
    expected = [value.numpy() for value in machine["main"](tvm.runtime.tensor(x))]
    planned, functions, _, _ = lower_to_executable(module, target)
    library = tvm.compile(tvm.IRModule(dict(functions.items())), target=target)
    planned.import_module(library.mod)
    own = relax.VirtualMachine(relax.VMExecutable(planned), tvm.cpu())
    for _ in range(2):
        found = [value.numpy() for value in own["main"](tvm.runtime.tensor(x))]
        for left, right in zip(found, expected, strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-5)


def chain(steps: int, length: object = 8, bound: int = 0) -> tvm.IRModule:
    """Kernels one after the other, all of whose tensors are alike."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((length, 16), "float32"))
    with builder.function("main", [x], attrs={"tir_var_upper_bound": {"n": bound}} if bound else None):
        with builder.dataflow():
            value = x
            for _ in range(steps):
                value = builder.emit(relax.op.exp(value))
            value = builder.emit_output(value)
        builder.emit_func_output(value)
    return builder.get()


def test_alike_tensors_of_one_place_are_made_once(target: tvm.target.Target) -> None:
    with target:
        module = lowered(chain(7))
        assert is_whole(module)
        once, each = (plan_memory(module, once=once)["main"].script() for once in (True, False))
    # Six between seven kernels, in two places.
    assert each.count("R.memory.alloc_tensor") == 6
    assert once.count("R.memory.alloc_tensor") == 2


def test_results_of_one_kernel_are_made_each_time(target: tvm.target.Target) -> None:
    """By fresh tensors those who watch a run see how many results a kernel has."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((8, 16), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value = x
            for _ in range(3):
                halves = builder.emit(relax.op.split(value, 2, axis=1))
                value = builder.emit(relax.op.concat([halves[1], halves[0]], axis=1))
            value = builder.emit_output(value)
        builder.emit_func_output(value)
    with target:
        planned = plan_memory(lowered(builder.get()), once=True)["main"].script()
    # Three times two halves; the results of the first two concatenations are one tensor.
    assert planned.count("R.memory.alloc_tensor") == 7


@pytest.mark.parametrize(("bound", "released"), [(100, False), (0, True)])
def test_tensors_are_released_where_some_have_no_place(
    bound: int, released: bool, target: tvm.target.Target
) -> None:
    with target:
        module = chain(4, tvm.tirx.Var("n", "int64"), bound)
        assert is_whole(lowered(module)) is not released
    code = relax.VMExecutable(lower_to_executable(module, target)[0]).as_text()
    assert ("vm.builtin.null_value" in code) is released


def test_tensors_of_an_open_length_are_planned_for_the_longest(target: tvm.target.Target) -> None:
    length = tvm.tirx.Var("n", "int64")
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((length, 16), "float32"))
    with builder.function("main", [x], attrs={"tir_var_upper_bound": {"n": 100}}):
        with builder.dataflow():
            value = x
            for _ in range(5):
                value = builder.emit(relax.op.exp(value))
            value = builder.emit_output(value)
        builder.emit_func_output(value)
    with target:
        planned = plan_memory(lowered(builder.get()))
    assert planned_bytes(planned) == 2 * 100 * 16 * 4


def tile(rows: int, parallel: bool) -> tvm.tirx.PrimFunc:
    """A product whose tiles of `rows` times 16 sums are too large for the stack."""
    a = te.placeholder((4 * rows, 32), "float32", "a")
    b = te.placeholder((32, 16), "float32", "b")
    k = te.reduce_axis((0, 32), "k")
    c = te.compute((4 * rows, 16), lambda i, j: te.sum(a[i, k] * b[k, j], k), "c")
    schedule = s_tir.Schedule(te.create_prim_func([a, b, c]))
    block = schedule.get_sblock("c")
    copy = schedule.cache_write(block, 0, "local")
    i, j, depth = schedule.get_loops(block)
    outer, inner = schedule.split(i, [None, rows])
    schedule.reorder(outer, depth, inner, j)
    schedule.reverse_compute_at(copy, outer)
    if parallel:
        schedule.parallel(outer)
    return schedule.mod["main"]


@pytest.mark.parametrize(
    ("parallel", "expected"), [(True, Workspace(0, 16384)), (False, Workspace(16384, 0))]
)
def test_workspaces_are_counted_by_who_takes_them(
    parallel: bool, expected: Workspace, target: tvm.target.Target
) -> None:
    assert workspace_of(lower_function(tile(256, parallel), "kernel", target)) == expected
    assert workspace_of(lower_function(tile(16, parallel), "kernel", target)) == Workspace()


def test_a_cached_kernel_knows_its_workspace(cache: KernelCache, target: tvm.target.Target) -> None:
    first = compile_kernel(tile(256, True), "kernel", target, cache)
    again = compile_kernel(tile(256, True), "kernel", target, cache)
    assert again.from_cache and not first.from_cache
    assert again.workspace == first.workspace == Workspace(0, 16384)
    assert again.content == first.content
    # An object alone, as earlier versions stored it, says nothing of its workspace.
    cache.put(first.key, first.content)
    assert not compile_kernel(tile(256, True), "kernel", target, cache).from_cache
