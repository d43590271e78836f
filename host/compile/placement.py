"""Which functions of a model for a GPU run on the CPU beside it.

Some can run nowhere else (sorts, sums along an axis). Around these, a small function is often better left on
the CPU than its data copied back and forth. What is decided is the cut of least estimated seconds between the
functions of both processors (maximum flow; J. Picard and H. Ratliff, "Minimum cuts and related problems",
Networks 5, 1975).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow
from tvm import relax, tirx

from host.build.cuda.default_schedule import default_schedule_gpu
from host.errors import BuildError, ScheduleError
from host.lowering.tasks import workload_hash
from host.model import LoweredModel, Task
from host.schedules import space_for
from host.tensor_ir.processor import for_cpu, is_for_cpu
from targets import HardwareModel

# Of a copy between both processors with the wait for it, beside its bytes, and of a call of a function on the
# CPU. Estimates: no board was measured.
_COPY_S, _CALL_S = 15e-6, 1e-6
# The share of its peak that a function of the CPU reaches on a default schedule, or one of the GPU on any.
_CPU_SHARE, _GPU_SHARE = 0.1, 0.5
# Capacities of the flow are whole nanoseconds in 32 bits.
_NANOSECOND_S, _FORBIDDEN = 1e-9, 1 << 29


@dataclass(frozen=True)
class _Work:
    """What the calls of a function cost.

    Attributes:
        cpu_s, gpu_s: estimated seconds of a call on each processor; infinite where it cannot run there.
        results_bytes: of its results.
    """

    cpu_s: float
    gpu_s: float
    results_bytes: int


def placed(lowered: LoweredModel, hardware: HardwareModel) -> LoweredModel:
    """The model with each function marked that runs on the CPU.

    A model that keeps state, or has entries beside `main`, stays as lowering left it.

    Args:
        lowered: for a GPU.
        hardware: of the board, with the GPU.
    """
    if hardware.gpu is None or lowered.state or lowered.entries:
        return lowered
    works = _works(lowered, hardware)
    chosen = _functions_on_cpu(lowered, hardware, works)
    moved = {task.name for task in lowered.tasks if task.name in chosen and not is_for_cpu(task.function)}
    if not moved:
        return lowered
    functions = {
        variable: for_cpu(function) if variable.name_hint in moved else function
        for variable, function in lowered.module.functions.items()
    }
    tasks = tuple(_on_cpu(task) if task.name in moved else task for task in lowered.tasks)
    return replace(lowered, module=tvm.IRModule(functions, attrs=lowered.module.attrs), tasks=tasks)


def _on_cpu(task: Task) -> Task:
    function = for_cpu(task.function)
    return replace(task, function=function, workload_hash=workload_hash(function))


def _works(lowered: LoweredModel, hardware: HardwareModel) -> dict[str, _Work]:
    """The work of each function that `main` calls."""
    tasks = {task.name: task for task in lowered.tasks}
    weights = set(list(lowered.module["main"].params)[len(lowered.signature.inputs) :])
    found: dict[str, _Work] = {}

    def visit(call: Any) -> None:
        if not isinstance(call, relax.Call) or getattr(call.op, "name", "") != "relax.call_tir":
            return
        name, read = call.args[0].name_hint, list(call.args[1].fields)
        if name in found:
            return
        task = tasks[name]
        buffers = [_buffer_bytes(parameter) for parameter in task.function.params]
        # Weights lie on the GPU, and a function of the CPU gets copies of them.
        copied = [buffers[place] for place, one in enumerate(read) if one in weights]
        cpu_s = _cpu_seconds(task, sum(buffers), hardware)
        cpu_s += sum(_copy_seconds(size, hardware) for size in copied)
        gpu_s = _gpu_seconds(task, buffers, len(read), hardware)
        found[name] = _Work(cpu_s, gpu_s, sum(buffers[len(read) :]))

    relax.analysis.post_order_visit(lowered.module["main"].body, visit)
    return found


def _buffer_bytes(parameter: tirx.Var) -> int:
    """Bytes of a parameter's tensor; 0 where its size is not a number."""
    kind = parameter.ty
    if not hasattr(kind, "shape"):
        return 0
    sizes = [int(size) for size in kind.shape if isinstance(size, tirx.IntImm)]
    dtype = tvm_ffi.dtype(str(kind.dtype))
    element_bytes: int = (dtype.bits * dtype.lanes + 7) // 8
    return prod(sizes) * element_bytes if len(sizes) == len(kind.shape) else 0


def _copy_seconds(size_bytes: int, hardware: HardwareModel) -> float:
    return _COPY_S + 2 * size_bytes / hardware.levels[-1].bandwidth_bytes_per_s


def _cpu_seconds(task: Task, moved_bytes: int, hardware: HardwareModel) -> float:
    """The longer of moving and computing, on one core."""
    return _CALL_S + max(
        moved_bytes / hardware.levels[-1].bandwidth_bytes_per_s,
        task.flops / (_CPU_SHARE * hardware.peak_flops),
    )


def _gpu_seconds(task: Task, buffers: Sequence[int], inputs: int, hardware: HardwareModel) -> float:
    """The longer of moving and computing; on a default schedule, of the steps that a thread takes in turn."""
    gpu = hardware.gpu
    assert gpu is not None
    if is_for_cpu(task.function):
        return float("inf")
    memory = gpu.levels[-1]
    seconds = max(sum(buffers) / memory.bandwidth_bytes_per_s, task.flops / (_GPU_SHARE * gpu.peak_flops))
    try:
        space_for(task, hardware)
    except ScheduleError:
        try:
            default_schedule_gpu(task.function, task.name)
        except BuildError:
            return float("inf")
        results = max((_elements(one) for one in list(task.function.params)[inputs:]), default=1)
        seconds = max(seconds, _iterations(task.function.body) / max(1, results) * memory.latency_s)
    return gpu.next_launch_s + seconds


def _elements(parameter: tirx.Var) -> int:
    kind = parameter.ty
    return (
        prod(int(size) for size in kind.shape if isinstance(size, tirx.IntImm))
        if hasattr(kind, "shape")
        else 1
    )


def _iterations(statement: Any) -> int:
    """Iterations of the innermost statements of a function, of those nests that have most."""
    most = 1

    def visit(loop: tirx.For) -> None:
        nonlocal most
        extent = int(loop.extent) if isinstance(loop.extent, tirx.IntImm) else 1
        most = max(most, extent * _iterations(loop.body))

    tvm_ffi.structural_walk(statement, (tirx.For, visit), order="pre")
    return most


def _functions_on_cpu(
    lowered: LoweredModel, hardware: HardwareModel, works: dict[str, _Work]
) -> frozenset[str]:
    """Names of the functions on the source's side of the least cut: the source is the CPU."""
    names = list(works)
    number = {name: 2 + index for index, name in enumerate(names)}
    network = _Network(2 + len(names))
    for name, work in works.items():
        calls = sum(call.kernel == name for call in lowered.calls.calls)
        network.add(0, number[name], calls * work.gpu_s)
        network.add(number[name], 1, calls * work.cpu_s)
    readers: dict[int, list[str]] = {}
    for call in lowered.calls.calls:
        for source in call.reads:
            readers.setdefault(source, []).append(call.kernel)
    inputs = lowered.signature.inputs
    for source, kernels in readers.items():
        if source < 0:
            # The executors put inputs on the GPU.
            size, writer = prod(inputs[-1 - source].shape) * 4, 1
        else:
            name = lowered.calls.calls[source].kernel
            size, writer = works[name].results_bytes, number[name]
        network.connect(writer, [number[kernel] for kernel in kernels], _copy_seconds(size, hardware))
    side = network.source_side()
    return frozenset(name for name in names if number[name] in side)


class _Network:
    """A network of seconds between two ends, 0 and 1."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._edges: list[tuple[int, int, int]] = []

    def add(self, start: int, end: int, seconds: float) -> None:
        """An edge that costs seconds where its start is on the source's side and its end is not."""
        capacity = _FORBIDDEN if seconds == float("inf") else round(seconds / _NANOSECOND_S)
        self._edges.append((start, end, min(capacity, _FORBIDDEN)))

    def connect(self, writer: int, readers: Sequence[int], seconds: float) -> None:
        """A tensor that is copied once where a reader is on the other side than its writer."""
        away, back = self._nodes, self._nodes + 1
        self._nodes += 2
        self.add(writer, away, seconds)
        self.add(back, writer, seconds)
        for reader in readers:
            self.add(away, reader, float("inf"))
            self.add(reader, back, float("inf"))

    def source_side(self) -> frozenset[int]:
        """The nodes on the source's side of the least cut; of several such cuts, the fewest."""
        starts, ends, capacities = np.array(self._edges, dtype=np.int32).T
        shape = (self._nodes, self._nodes)
        # Parallel edges are added up.
        graph = csr_array((capacities, (starts, ends)), shape=shape, dtype=np.int32)
        left = graph - maximum_flow(graph, 0, 1).flow
        left.data = np.maximum(left.data, 0)
        left.eliminate_zeros()
        reached = breadth_first_order(left, 0, return_predecessors=False)
        return frozenset(int(node) for node in reached)
