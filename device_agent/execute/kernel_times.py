"""Times the kernels of a model on the virtual machine, with the caches as the model leaves them."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, NamedTuple

# The prefix of the machine's own calls, which compute nothing that the author of a model would recognise.
BUILTIN = "vm.builtin."


class KernelTotal(NamedTuple):
    """All calls of one kernel.

    Attributes:
        calls: number of calls.
        seconds: of all calls together.
    """

    calls: int
    seconds: float


class KernelTimes:
    """An instrument for `VirtualMachine.instrumented`. The machine's own calls are timed too.

    Args:
        synchronise: waits until the device has completed its work.
    """

    def __init__(self, synchronise: Callable[[], None]) -> None:
        self._synchronise = synchronise
        self._totals: Dict[str, KernelTotal] = {}
        self._started_s = 0.0

    def __call__(self, _function: Any, name: str, before: bool, *_: Any) -> None:
        """Notes the time before or after a call of the machine."""
        self._synchronise()
        now_s = time.perf_counter()
        if not before:
            calls, seconds = self._totals.get(name, (0, 0.0))
            self._totals[name] = KernelTotal(calls + 1, seconds + now_s - self._started_s)
            return
        self._started_s = time.perf_counter()

    def take(self) -> Dict[str, KernelTotal]:
        """The totals by name, in the order of the first calls, since they were taken last."""
        totals, self._totals = self._totals, {}
        return totals
