"""A device that throttles is not calibrated by the times of a throttled device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from host.calibration.bench import Bench
from host.errors import MeasureError


class Remote:
    """A session's RPC whose measurements say what they are told to."""

    def __init__(self, reply: dict[str, Any]) -> None:
        self.reply = reply

    def rpc(self) -> Remote:
        return self

    def get_function(self, name: str) -> Any:
        return lambda *arguments: json.dumps(self.reply)

    def upload(self, data: bytearray, name: str) -> None:
        assert data

    def load_module(self, name: str) -> str:
        return name

    def remove(self, name: str) -> None:
        pass

    def cpu(self, index: int) -> int:
        return index


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "calibration.so"
    path.write_bytes(b"library")
    return path


def bench(library: Path, **reply: Any) -> Bench:
    state: dict[str, Any] = {"state_before": {}, "state_after": {}, "threads": 1}
    session: Any = Remote({"times_s": [1e-3, 2e-3], **state, **reply})
    return Bench(session, library)


def test_times_of_a_throttled_device_are_refused_with_the_reason(library: Path) -> None:
    assert bench(library).time("fused_1") == [1e-3, 2e-3]
    assert bench(library, throttled=False, throttle_reasons=[]).time("fused_1") == [1e-3, 2e-3]
    hot = bench(library, throttled=True, throttle_reasons=["frequency capped"])
    with pytest.raises(MeasureError, match="throttles \\(frequency capped\\)"):
        hot.time("fused_1")


@pytest.mark.parametrize("times", [[], [0.0], [-1.0], ["1"], [1e9], 5])
def test_times_that_are_none_are_refused(library: Path, times: object) -> None:
    with pytest.raises(MeasureError, match="no usable time"):
        bench(library, times_s=times).time("fused_1")


def test_reasons_of_the_device_are_fit_to_be_shown(library: Path) -> None:
    with pytest.raises(MeasureError) as caught:
        bench(library, throttled=True, throttle_reasons=["\x1b[31mhot\n"]).time("fused_1")
    assert str(caught.value).isprintable()
