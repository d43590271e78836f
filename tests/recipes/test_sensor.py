"""A sensor is one file of the agent and its name in a table."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import ModuleType

import pytest

from device_agent import power
from tests.recipes import files
from tests.unit.device_agent.power import trees

SENSOR = "device_agent/power/battery.py"
FACTS = {"sensors": ["battery"]}


@pytest.fixture(autouse=True)
def battery(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipe's file and its entry in the table."""
    module = ModuleType(Path(SENSOR).with_suffix("").as_posix().replace("/", "."))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(files()[SENSOR], SENSOR, "exec"), vars(module))
    monkeypatch.setitem(power.SENSORS, "battery", module.Battery)


def test_watts_are_read_and_described(tmp_path: Path) -> None:
    trees.write(tmp_path, "sys/class/power_supply/BAT0/power_now", 4_250_000)
    sensor = power.choose(str(tmp_path), FACTS)
    assert sensor.read() == pytest.approx(4.25)
    described = power.summary(sensor)
    assert described["unavailable"] is None
    assert (described["source"], described["boundary"], described["rails"]) == (
        "battery",
        "battery",
        ["BAT0"],
    )


def test_a_board_without_it_is_told_so(tmp_path: Path) -> None:
    sensor = power.choose(str(tmp_path), FACTS)
    assert sensor.describe()["kind"] == "unavailable"
    assert "no battery" in sensor.probe()


def test_a_damaged_reading_is_a_reason(tmp_path: Path) -> None:
    trees.write(tmp_path, "sys/class/power_supply/BAT0/power_now", "many")
    assert "the battery" in power.choose(str(tmp_path), FACTS).probe()


def test_its_syntax_is_that_of_the_boards() -> None:
    ast.parse(files()[SENSOR], feature_version=(3, 8))
