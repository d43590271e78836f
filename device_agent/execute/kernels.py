"""Measures the times of single kernels, as the RPC function "edgetlm.measure"."""

from __future__ import annotations

import array
import functools
import json
import random
import statistics
import struct
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from device_agent.board.machine import Machine
from device_agent.contract.measuring import KERNEL_ENERGY, MEASURING, KernelPlan
from device_agent.execute import ffi
from device_agent.measure.energy import unavailable
from device_agent.measure.measurement import Meter, TimeMeter, Window
from device_agent.measure.repeats import calls_together, kernel_counts
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
    """The fields of a kernel's specification that decide how often to call the kernel.

    Raises:
        TypeError, ValueError: a field is neither a number nor true or false.
    """
    found: Dict[str, Any] = {}
    for name, standard in KernelPlan()._asdict().items():
        value = fields.get(name, standard)
        # Every text that is not empty is true, "false" too.
        found[name] = bool(float(value)) if isinstance(standard, bool) else type(standard)(value)
    return KernelPlan(**found)


class KernelMeter:
    """Measures functions of loaded modules.

    Args:
        machine: machine whose state is recorded.
        threads: number of threads that the kernels use, for the record.
        power: measures the energy of a kernel; None where that is not asked for.
    """

    def __init__(self, machine: Machine, threads: int, power: Optional[Meter] = None) -> None:
        self._meter = TimeMeter(machine, threads)
        self._power = power
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
            `threads`, `throttled`, `throttle_reasons`, `invalid`, `conditions`; `energy` of one call
            where the plan asks for it.
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
        reply = dict(conditions, times_s=times)
        if plan.energy and self._power is not None:
            reply["energy"] = self._energy(module, name, statistics.median(times), tensors, on_gpu)
        return json.dumps(reply)

    def _energy(
        self, module: Any, name: str, once_s: float, tensors: List[Any], on_gpu: bool
    ) -> Dict[str, Any]:
        """The energy of one call, from windows in which the kernel is called in a loop.

        Its caches stay warm in the loop: to clear them would take energy too.
        """
        assert self._power is not None
        together = calls_together(once_s)
        call = self._loop(module, name, together, tensors, on_gpu)
        found = self._power.measure(call, KERNEL_ENERGY, together)
        # The reply's own state is that of the samples, which came before.
        if found["throttled"] or found["invalid"]:
            return unavailable("the board throttled")
        record = found["energy"]
        # Power over time, of thousands of programs, would be most of what their records hold.
        return dict(record, trace=[])

    def _loop(
        self, module: Any, name: str, together: int, tensors: List[Any], on_gpu: bool
    ) -> Callable[[], Any]:
        """So many calls of a function, without this interpreter between them."""
        function = module.get_function(name, query_imports=True)
        kind = _CUDA if on_gpu else _CPU
        if together == 1:
            device = ffi.device_of("cuda" if on_gpu else "cpu")

            def once() -> None:
                function(*tensors)
                ffi.synchronise(device)

            return once

        def many() -> None:
            # The evaluator makes one more call than it counts.
            self._evaluated(function, kind, together - 1, 1, 0, tensors)

        return many

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
        raw = self._evaluated(function, kind, number, repeat, plan.flush_bytes, tensors)
        return list(struct.unpack("<%dd" % (len(raw) // 8), raw))

    def _evaluated(
        self, function: Any, kind: int, number: int, repeat: int, flush_bytes: int, tensors: List[Any]
    ) -> bytes:
        """What the runtime's evaluator gives: seconds of one call of each sample, as bytes."""
        # The evaluator accepts only global functions or functions that are the module's own.
        self._runtime.register_global_func(_KERNEL, function, override=True)
        try:
            evaluator = self._evaluator(None, _KERNEL, kind, 0, number, repeat, 0, 100, 0, 1, flush_bytes, "")
            return bytes(evaluator(*tensors))
        finally:
            self._runtime.remove_global_func(_KERNEL)
