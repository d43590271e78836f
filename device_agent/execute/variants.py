"""Measures the kernels of several variants of the loaded model: the RPC function "edgetlm.measure_variants".

A variant is a library of the same model (same parameters and signature) whose kernels have other programs.
Each variant has a virtual machine of its own beside the loaded one, and all share its parameters and inputs.
They run in turn, so that whatever changes the clock or the caches meanwhile changes the times of all of them.
"""

from __future__ import annotations

import json
import random
import time
from typing import Any, Dict, List, Mapping, Sequence

from device_agent.board.machine import Machine
from device_agent.contract.measuring import VariantPlan
from device_agent.errors import AgentError
from device_agent.execute.engines import fails
from device_agent.execute.kernel_times import BUILTIN, KernelTimes, KernelTotal
from device_agent.execute.virtual_machine import VirtualMachine
from device_agent.measure.measurement import TimeMeter, Window, variant_plan_of


class Variant:
    """One library of a model.

    Args:
        model: the loaded model, whose device, parameters and inputs the variant uses.
        library: loaded library.
        place: index of the variant, for messages.

    Raises:
        AgentError: the library holds no such model.
    """

    def __init__(self, model: VirtualMachine, library: Any, place: int) -> None:
        self._name = "variant %d" % place
        self._times = KernelTimes(model.synchronise)
        try:
            self._invoke = model.instrumented(self._times, library)
        except Exception as error:  # tvm_ffi raises any class, by name
            raise fails("tvm cannot load", self._name, error) from error

    def run(self) -> Dict[str, KernelTotal]:
        """Runs one inference; returns the calls and seconds of each kernel.

        Raises:
            AgentError: a kernel failed.
        """
        try:
            self._invoke()
        except Exception as error:  # a model's code may raise any exception
            raise fails("tvm cannot run", self._name, error) from error
        totals = self._times.take()
        return {name: total for name, total in totals.items() if not name.startswith(BUILTIN)}


class VariantMeter:
    """Measures the kernels of variants, in runs that alternate between the variants.

    Args:
        machine: machine whose state is recorded.
        threads: number of threads that the kernels use, for the record.
    """

    def __init__(self, machine: Machine, threads: int) -> None:
        self._meter = TimeMeter(machine, threads)

    def measure(self, model: VirtualMachine, specification: str, libraries: Sequence[Any]) -> str:
        """Times the kernels of some variants. Calls of the virtual machine itself are left out.

        Args:
            model: the loaded model, with its inputs.
            specification: JSON with the fields of `VariantPlan`.
            libraries: one loaded library for each variant.

        Returns:
            JSON with `variants`, one for each library: `slow` (the variant ran only once, because it took too
            long) and `kernels` (`name`, `calls` in one run, `times_s`: seconds of all these calls in each
            counted run); and `state_before`, `state_after`, `threads`, `throttled`, `throttle_reasons`,
            `invalid`, `conditions`.

        Raises:
            AgentError: a field is wrong, no library is given, a library holds no such model, or a kernel
                failed.
        """
        fields = json.loads(specification)
        if not isinstance(fields, dict):
            raise AgentError("bad_request", "the specification of variants is no object")
        plan = variant_plan_of(fields)
        if not libraries:
            raise AgentError("bad_request", "no variant is given; load at least one library")
        # The first run reads the weights and starts the threads; it would make the first variant seem slow.
        model.invoke()
        variants = [self._variant(model, library, place) for place, library in enumerate(libraries)]

        def take(_window_s: float) -> Window:
            start_s = time.monotonic()
            found = measure_in_turn(variants, plan)
            runs = sum(len(kernel["times_s"]) for one in found for kernel in one["kernels"][:1])
            return Window(found, start_s, time.monotonic(), runs)

        found, conditions = self._meter.measure(plan, take)
        return json.dumps(dict(conditions, variants=found))

    def _variant(self, model: VirtualMachine, library: Any, place: int) -> Variant:
        return Variant(model, library, place)


def measure_in_turn(variants: Sequence[Variant], plan: VariantPlan) -> List[Dict[str, Any]]:
    """Runs each variant once, and then the ones that are not too slow in rounds of shuffled order.

    Returns:
        `slow` and `kernels` of each variant; see `VariantMeter.measure`.
    """
    first = [variant.run() for variant in variants]
    longest_s = plan.slowest * _seconds(first[0])
    slow = [_seconds(run) > longest_s for run in first]
    # All others are compared with the first variant, so that it always runs.
    slow[0] = False
    counted = [[run] if too_slow else [] for run, too_slow in zip(first, slow)]
    order = [place for place, too_slow in enumerate(slow) if not too_slow]
    generator = random.Random(plan.seed)
    started_s = time.monotonic()
    for _ in range(plan.runs):
        generator.shuffle(order)
        for place in order:
            counted[place].append(variants[place].run())
        if time.monotonic() - started_s >= plan.max_s:
            break
    return [{"slow": slow[place], "kernels": _kernels(runs)} for place, runs in enumerate(counted)]


def _seconds(run: Mapping[str, KernelTotal]) -> float:
    return sum(total.seconds for total in run.values())


def _kernels(runs: Sequence[Mapping[str, KernelTotal]]) -> List[Dict[str, Any]]:
    return [
        {"name": name, "calls": total.calls, "times_s": [run[name].seconds for run in runs if name in run]}
        for name, total in runs[0].items()
    ]
