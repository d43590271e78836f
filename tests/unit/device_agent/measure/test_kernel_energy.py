"""The energy of a kernel counts only where the board ran as it can in its windows."""

from __future__ import annotations

from typing import Any

import pytest

from device_agent.execute.kernels import KernelMeter

_RECORD = {"kind": "measured", "gross_j": 2.0, "trace": [[0.0, 1.0, None]]}


class _Power:
    """Gives one answer to every measurement."""

    def __init__(self, throttled: bool, invalid: bool) -> None:
        self._answer = {"energy": _RECORD, "throttled": throttled, "invalid": invalid}

    def measure(self, call: Any, plan: Any, together: int) -> dict[str, Any]:
        """See `Meter.measure`."""
        return self._answer


class _Meter(KernelMeter):
    """Without a runtime: nothing is called."""

    def __init__(self, power: Any) -> None:
        self._power = power

    def _loop(self, *_: Any) -> Any:
        return lambda: None


@pytest.mark.parametrize(
    ("throttled", "invalid", "joules"), [(False, False, 2.0), (True, False, None), (True, True, None)]
)
def test_joules_of_a_throttled_board_are_none(throttled: bool, invalid: bool, joules: float | None) -> None:
    found = _Meter(_Power(throttled, invalid))._energy(None, "relu", 1e-3, [], False)
    assert found["gross_j"] == joules
    if joules is None:
        assert found["kind"] == "unavailable" and found["reason"] == "the board throttled"
    else:
        assert found["trace"] == []
