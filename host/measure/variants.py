"""Times of the kernels of several variants of a model, inside of the model, through TVM RPC."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from device_agent.contract.fields import Fields
from device_agent.contract.limits import LIMITS
from device_agent.contract.measuring import VariantPlan
from host.closing import Closing
from host.errors import MeasureError
from host.measure.connection import LibraryConnection
from host.model import Measurement
from host.transport.replies import conditions_of, shown

if TYPE_CHECKING:
    from host.transport.session import Session

_WHAT = "the variants of the model"
_PLAN = VariantPlan()


@dataclass(frozen=True)
class VariantTimes:
    """Times of the kernels of one variant of a model, inside of the model.

    Attributes:
        slow: whether it was run only once, because it took too long.
        times_s: seconds of one call of each kernel, for each counted run, by kernel name (the total of a run
            divided by the calls).
    """

    slow: bool
    times_s: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True)
class VariantMeasurement:
    """The variants of one measurement.

    Attributes:
        variants: in the order of the libraries.
        state: how they were measured, without samples and without energy.
    """

    variants: tuple[VariantTimes, ...]
    state: Measurement


class VariantRunner(Closing):
    """Measures variants of the model that a session has loaded, over one RPC connection; a context manager.

    A variant is a library of the same model with other programs for its kernels. All variants share the
    parameters and inputs of the session, and run in turn.

    A variant that crashes, hangs or eats memory costs the session its executor (SessionLost). The next
    command finds a new executor: load the bundle and set the inputs again before the next measurement. The
    session's time limit is that of a whole measurement.

    Args:
        session: of the engine tvm, with a loaded bundle and inputs that are set.
    """

    def __init__(self, session: Session) -> None:
        self._libraries = LibraryConnection(session)

    def measure(
        self,
        libraries: Sequence[Path],
        runs: int = _PLAN.runs,
        max_s: float = _PLAN.max_s,
        slowest: float = _PLAN.slowest,
        seed: int = _PLAN.seed,
    ) -> VariantMeasurement:
        """Time the kernels of each variant.

        Every variant runs once, uncounted, then the variants run in rounds of shuffled order.

        Args:
            libraries: shared library of each variant, on the host. The others are compared with the first
                one, which is never too slow.
            runs: rounds; each variant runs once in a round.
            max_s: begin no further round so many seconds after the first one; one round is always completed.
            slowest: a variant is not run again whose first run takes more than so many times the first run of
                the first variant. That single run is what it reports.
            seed: of the order within the rounds.

        Raises:
            MeasureError: a library cannot be loaded, or holds no such model; the session has no bundle loaded
                or no inputs set.
            DeviceError: the device's answer is wrong.
            SessionLost: a variant crashed, hung or used too much memory.
        """
        plan = {"runs": runs, "max_s": max_s, "slowest": slowest, "seed": seed}
        modules: list[Any] = []
        try:
            for place, library in enumerate(libraries):
                with self._libraries.measuring(f"variant {place} of the model"):
                    modules.append(self._libraries.load(library))
            with self._libraries.measuring(_WHAT):
                reply = self._libraries.ask(_WHAT, "edgetlm.measure_variants", json.dumps(plan), *modules)
        finally:
            # The traceback of an error would keep them, and with them the libraries on the device.
            modules.clear()
        return variant_measurement_of(reply, len(libraries), runs)

    def close(self) -> None:
        """End the connection."""
        self._libraries.close()


def variant_measurement_of(reply: Mapping[str, Any], count: int, runs: int) -> VariantMeasurement:
    """The measurement in the agent's answer.

    Args:
        reply: as it came.
        count: number of variants that were given.
        runs: rounds that were asked for.

    Raises:
        MeasureError: the variants or their times are not what they have to be.
        DeviceError: the state is wrong.
    """
    fields = Fields(
        reply, lambda text: MeasureError(f"{_WHAT}: the device sent a wrong answer: {text}; measure again")
    )
    variants = tuple(_times_of(variant, runs) for variant in fields.objects("variants", count))
    if len(variants) != count:
        raise fields.wrong("variants", f"a list of {count} variants")
    return VariantMeasurement(variants, conditions_of(reply))


def _times_of(variant: Fields, runs: int) -> VariantTimes:
    slow = variant.truth("slow")
    low, high = LIMITS.records.shortest_s, LIMITS.records.longest_s
    times: dict[str, tuple[float, ...]] = {}
    for kernel in variant.objects("kernels"):
        name = shown(kernel.text("name"))
        calls = kernel.whole("calls", 1, LIMITS.wire.runs)
        once = tuple(seconds / calls for seconds in kernel.numbers("times_s", 1 if slow else runs))
        # A time of nothing would be the fastest of all.
        if not once or not all(low <= seconds <= high for seconds in once):
            raise kernel.wrong("times_s", f"one to {1 if slow else runs} usable times")
        if name in times:
            raise variant.error(f"kernel {name} comes twice")
        times[name] = once
    if len({len(once) for once in times.values()}) != 1:
        raise variant.wrong("kernels", "at least one kernel, and as many times of each")
    return VariantTimes(slow, times)
