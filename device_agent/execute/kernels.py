"""Measures the times of single kernels, as the RPC function "edgetlm.measure"."""

from __future__ import annotations

import array
import functools
import json
import random
import struct
import time
from typing import Any, Dict, List, Mapping, Sequence

from device_agent.board.machine import Machine
from device_agent.contract.measuring import MEASURING, KernelPlan
from device_agent.execute import ffi
from device_agent.measure.measurement import TimeMeter, Window
from device_agent.measure.repeats import kernel_counts
from device_agent.wire.frames import tensor_bytes

_KERNEL = "edgetlm.kernel"
# DLPack's device types.
_CPU, _CUDA = 1, 2
_FLOATS = {"float16": "e", "float32": "f", "float64": "d"}


@functools.lru_cache(maxsize=8)
def _pattern(dtype: str, seed: int) -> bytes:
    # Floats are normally distributed, because zeros and denormals would change times and power. Integers are
    # often indices, and 0 is the only index in the range of every table.
    if dtype in _FLOATS:
        generator = random.Random(seed)
        values = [generator.gauss(0.0, 1.0) for _ in range(MEASURING.random_elements)]
        if dtype == "float16":
            return struct.pack("<%de" % MEASURING.random_elements, *values)
        return array.array(_FLOATS[dtype], values).tobytes()
    return bytes(MEASURING.random_elements)


def random_tensor(shape: Sequence[int], dtype: str, seed: int, device: Any = None) -> Any:
    """A tensor of seeded normal numbers, a repeated pattern. Integers and booleans are 0."""
    tensor = ffi.empty(shape, dtype, device)
    size = tensor_bytes(shape, dtype)
    pattern = _pattern(dtype, seed)
    ffi.copy_from_buffer(tensor, (pattern * (size // len(pattern) + 1))[:size])
    return tensor


def kernel_plan_of(fields: Mapping[str, Any]) -> KernelPlan:
    """The fields of a kernel's specification that decide how often to call the kernel."""
    standard = KernelPlan()._asdict().items()
    return KernelPlan(**{name: type(value)(fields.get(name, value)) for name, value in standard})


class KernelMeter:
    """Measures functions of loaded modules.

    Args:
        machine: machine whose state is recorded.
        threads: number of threads that the kernels use, for the record.
    """

    def __init__(self, machine: Machine, threads: int) -> None:
        self._meter = TimeMeter(machine, threads)
        self._runtime = ffi.load_runtime()
        self._evaluator = self._runtime.get_global_func("runtime.RPCTimeEvaluator")

    def measure(self, module: Any, name: str, specification: str, *arguments: Any) -> str:
        """Times one function.

        Args:
            module: module that contains the function.
            name: name of the function.
            specification: JSON with the fields of `KernelPlan`, `device` ("cuda", or else the CPU), and
                `arguments` ([shape, dtype] each) if no tensors are given.
            arguments: tensors to call the function with.

        Returns:
            JSON with `times_s` (seconds of one call, for each sample), `state_before`, `state_after`,
            `threads`, `throttled`, `throttle_reasons`, `invalid`, `conditions`.
        """
        fields: Dict[str, Any] = json.loads(specification)
        plan = kernel_plan_of(fields)
        on_gpu = fields.get("device") == "cuda"
        device = ffi.device_of("cuda" if on_gpu else "cpu")
        tensors = list(arguments) or [
            random_tensor(shape, dtype, plan.seed + index, device)
            for index, (shape, dtype) in enumerate(fields["arguments"])
        ]

        def take(_window_s: float) -> Window:
            start_s = time.monotonic()
            times = self._times(module, name, plan, tensors, on_gpu)
            return Window(times, start_s, time.monotonic(), len(times))

        times, conditions = self._meter.measure(plan, take)
        return json.dumps(dict(conditions, times_s=times))

    def _times(
        self, module: Any, name: str, plan: KernelPlan, tensors: List[Any], on_gpu: bool
    ) -> List[float]:
        # The kernels of a whole model are in a module that the library imports.
        function = module.get_function(name, query_imports=True)
        kind = _CUDA if on_gpu else _CPU
        device = ffi.device_of("cuda" if on_gpu else "cpu")
        begin = time.perf_counter()
        function(*tensors)
        ffi.synchronise(device)
        first = time.perf_counter() - begin
        if first >= plan.max_s:
            return [first]
        begin = time.perf_counter()
        function(*tensors)
        ffi.synchronise(device)
        number, repeat = kernel_counts(plan, first, time.perf_counter() - begin)
        # The evaluator accepts only global functions or functions that are the module's own.
        self._runtime.register_global_func(_KERNEL, function, override=True)
        try:
            evaluator = self._evaluator(
                None, _KERNEL, kind, 0, number, repeat, 0, 100, 0, 1, plan.flush_bytes, ""
            )
            raw = bytes(evaluator(*tensors))
        finally:
            self._runtime.remove_global_func(_KERNEL)
        return list(struct.unpack("<%dd" % (len(raw) // 8), raw))
