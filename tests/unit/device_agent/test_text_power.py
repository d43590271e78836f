"""Watts of texts: what is made of the answers of a meter."""

from __future__ import annotations

from typing import Any

import pytest

from device_agent.measure.meter_client import MeterLost
from device_agent.text_power import TextPower
from sdk.cli.commands.chat import speed
from sdk.language_model import TextTiming


class Meter:
    """A meter of 5 W that answers as the process does, and remembers what it was asked."""

    def __init__(self, reason: str | None = None) -> None:
        self.reason, self.asked, self.lost = reason, [], False  # type: ignore[var-annotated]

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if self.lost:
            raise MeterLost("the power meter ended with code 1")

    def probe(self) -> dict[str, Any]:
        self._ask("probe")
        return {"unavailable": self.reason}

    def begin(self, plan: dict[str, Any]) -> dict[str, Any]:
        self._ask("begin")
        return {}

    def end(self, start_s: float, end_s: float, runs: int) -> dict[str, Any]:
        self._ask("end")
        assert 0.0 < start_s <= end_s
        return {"energy": {"gross_j": 10.0 / runs, "mean_w": 5.0}}

    def close(self) -> None:
        self.asked.append("close")


def test_a_text_has_watts_and_joules_a_token() -> None:
    power = TextPower(Meter())
    power.begin()
    assert power.end(4) == {"watts": 5.0, "joules_a_token": 2.5} and not power.unavailable
    assert power.end(4) is None, "no text was begun"


def test_a_text_that_is_left_does_not_count_for_the_next_one() -> None:
    meter = Meter()
    power = TextPower(meter)
    power.begin()
    power.begin()
    assert power.end(1) is not None and meter.asked == ["probe", "begin", "end", "begin", "end"]


def test_without_a_sensor_nothing_is_asked() -> None:
    meter = Meter("no RAPL")
    power = TextPower(meter)
    power.begin()
    assert power.end(3) is None and power.unavailable == "no RAPL" and meter.asked == ["probe", "close"]


def test_a_meter_that_ends_costs_no_text() -> None:
    meter = Meter()
    power = TextPower(meter)
    meter.lost = True
    power.begin()
    assert power.end(3) is None and "ended with code 1" in power.unavailable


@pytest.mark.parametrize(("watts", "said"), [(5.125, ", 5.12 W, 0.25 J a token;"), (None, "of prompt);")])
def test_the_line_behind_a_text_has_them(watts: float | None, said: str) -> None:
    joules = None if watts is None else 0.25
    assert said in speed(TextTiming(3, 0, 0.5, 4, 1.0, 0, 3.0, watts, joules), "max_tokens")


def test_the_line_behind_a_text_counts_one_token() -> None:
    line = speed(TextTiming(1, 0, 0.5, 1, 0.0, 0, None), "max_tokens")
    assert line.startswith("[1 token, ") and "(1 token of prompt)" in line
