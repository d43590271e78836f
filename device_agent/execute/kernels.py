"""Times of single kernels, as the RPC function "edgetlm.measure"."""

from __future__ import annotations

import array
import functools
import json
import math
import random
import struct
import time
from typing import Any, Dict, List, Optional, Sequence

from device_agent.board.machine import Machine
from device_agent.execute import ffi
from device_agent.measure.meter import PowerMeter
from device_agent.power.none import NoSensor
from device_agent.wire.frames import tensor_bytes

_KERNEL = "edgetlm.kernel"
# Measuring once more and waiting so long for it costs a search less than a wrong time.
_RETRIES = 1
_COOL_S = 30.0
_PATTERN_ELEMENTS = 4096
# DLPack's numbers of devices.
_CPU, _CUDA = 1, 2
_FLOATS = {"float16": "e", "float32": "f", "float64": "d"}


@functools.lru_cache(maxsize=8)
def _pattern(dtype: str, seed: int) -> bytes:
    # Normal numbers for floats: zeros and denormals would change times and power. Integers are indices
    # as often as not, and only 0 is in range of every table.
    if dtype in _FLOATS:
        generator = random.Random(seed)
        values = [generator.gauss(0.0, 1.0) for _ in range(_PATTERN_ELEMENTS)]
        if dtype == "float16":
            return struct.pack("<%de" % _PATTERN_ELEMENTS, *values)
        return array.array(_FLOATS[dtype], values).tobytes()
    return bytes(_PATTERN_ELEMENTS)


def random_tensor(shape: Sequence[int], dtype: str, seed: int, device: Any = None) -> Any:
    """A tensor of seeded normal numbers (of a repeated pattern); integers and booleans are 0."""
    tensor = ffi.empty(shape, dtype, device)
    size = tensor_bytes(shape, dtype)
    pattern = _pattern(dtype, seed)
    ffi.copy_from_buffer(tensor, (pattern * (size // len(pattern) + 1))[:size])
    return tensor


class KernelMeter:
    """Measures functions of loaded modules.

    Args:
        machine: whose state is recorded.
        threads: threads that kernels use, for the record.
    """

    def __init__(self, machine: Machine, threads: int) -> None:
        self._meter = PowerMeter(machine, NoSensor("not asked for"))
        self._threads = threads
        self._runtime = ffi.load_runtime()
        self._evaluator = self._runtime.get_global_func("runtime.RPCTimeEvaluator")

    def measure(self, module: Any, name: str, specification: str, *arguments: Any) -> str:
        """Times one function.

        Args:
            module: the module that holds it.
            name: of the function.
            specification: JSON of `repeat` (samples), `number` (calls in a sample, at least),
                `min_repeat_ms` (length of a sample, at least), `max_s` (stop early; one sample is
                always taken), `flush_bytes` (cache to clear before each sample, which is one call then),
                `retries` (measure so often again, after cooling for `cool_s` at most, where the device
                throttled), `seed`, `device` ("cuda", else the CPU), and `arguments` ([shape, dtype] each)
                where no tensors are given.
            arguments: tensors to call it with.

        Returns:
            JSON of `times_s` (seconds of one call, a sample each), `state_before`, `state_after`, `threads`,
            `throttled`, `throttle_reasons`, `invalid`, `conditions`.
        """
        plan: Dict[str, Any] = json.loads(specification)
        seed = int(plan.get("seed", 0))
        device = ffi.device_of(str(plan.get("device", "cpu")))
        tensors = list(arguments) or [
            random_tensor(shape, dtype, seed + index, device)
            for index, (shape, dtype) in enumerate(plan["arguments"])
        ]
        terms: Optional[Dict[str, Any]] = {
            "energy": False,
            "retries": int(plan.get("retries", _RETRIES)),
            "cool_s": float(plan.get("cool_s", _COOL_S)),
        }
        again = True
        while again:
            self._meter.begin(terms)
            terms = None
            start_s = time.monotonic()
            times = self._times(module, name, plan, tensors)
            answer = self._meter.end(start_s, time.monotonic(), len(times))
            again = answer.pop("again")
        told = {key: value for key, value in answer.items() if key not in ("keep", "energy")}
        return json.dumps(dict(told, times_s=times, threads=self._threads))

    def _times(self, module: Any, name: str, plan: Dict[str, Any], tensors: List[Any]) -> List[float]:
        # Kernels of a whole model lie in a module that its library imports.
        function = module.get_function(name, query_imports=True)
        on_gpu = plan.get("device") == "cuda"
        kind = _CUDA if on_gpu else _CPU
        device = ffi.device_of("cuda" if on_gpu else "cpu")
        begin = time.perf_counter()
        function(*tensors)
        ffi.synchronise(device)
        first = time.perf_counter() - begin
        limit = float(plan.get("max_s", 10.0))
        if first >= limit:
            return [first]
        begin = time.perf_counter()
        function(*tensors)
        ffi.synchronise(device)
        once = max(time.perf_counter() - begin, 1e-9)
        flush = int(plan.get("flush_bytes", 0))
        shortest = 0.0 if flush else float(plan.get("min_repeat_ms", 0)) * 1e-3
        number = max(int(plan.get("number", 1)), math.ceil(shortest / once))
        repeat = max(1, min(int(plan.get("repeat", 5)), int((limit - first) / (number * once))))
        # The evaluator takes a module's own functions or global ones.
        self._runtime.register_global_func(_KERNEL, function, override=True)
        try:
            evaluator = self._evaluator(None, _KERNEL, kind, 0, number, repeat, 0, 100, 0, 1, flush, "")
            raw = bytes(evaluator(*tensors))
        finally:
            self._runtime.remove_global_func(_KERNEL)
        return list(struct.unpack("<%dd" % (len(raw) // 8), raw))
