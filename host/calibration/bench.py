"""Programs in one session on a device, timed one by one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from host.closing import Closing
from host.errors import MeasureError
from host.measure.connection import LibraryConnection
from host.transport.replies import measurement_of

if TYPE_CHECKING:
    from host.transport import Session

PLAN = {"repeat": 12, "number": 1, "min_repeat_ms": 2.0, "max_s": 2.0}
# Other work on the device only ever makes things slower: the fast end of samples is what it can do.
_PERCENTILE = 10.0


def fast_end(times_s: Sequence[float]) -> float:
    """Seconds of one call, of samples some of which other work on the device made slower."""
    return float(np.percentile(times_s, _PERCENTILE))


class Bench(Closing):
    """One library of programs in one session; a context manager."""

    def __init__(self, session: Session, library: Path) -> None:
        self._libraries = LibraryConnection(session)
        with self._libraries.measuring("the device"):
            self._module = self._libraries.load(library)
            self.device = self._libraries.remote.cpu(0)

    def time(self, name: str, *arguments: Any) -> list[float]:
        """Seconds of one call of a program, a sample each.

        Raises:
            MeasureError: the device throttled, and again after it had cooled down; or the program cannot be
                measured.
            SessionLost: the executor is gone.
        """
        what = f"program {name}"
        with self._libraries.measuring(what):
            reply = self._libraries.ask(
                what, "edgetlm.measure", self._module, name, json.dumps(PLAN), *arguments
            )
        measured = measurement_of(reply)
        if measured.throttled:
            raise MeasureError(
                f"the device throttles ({', '.join(measured.throttle_reasons)}), its figures would be wrong;"
                " cool it or give it a stronger supply, and run the command again"
            )
        return list(measured.times_s)

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function of the loaded module once."""
        with self._libraries.measuring(f"program {name}"):
            self._module[name](*arguments)

    def constant(self, count: int, dtype: str, value: float) -> Any:
        """A tensor of one value on the device."""
        import tvm

        return tvm.runtime.tensor(np.full((count,), value, dtype), self.device)

    def buffer(self, elements: int) -> Any:
        """A large tensor on the device; what is in it is not known."""
        import tvm

        return tvm.runtime.empty((elements,), "int32", self.device)

    def close(self) -> None:
        """Ends the connection to the device."""
        self._libraries.close()
