"""A file of the agent is all that a sensor needs."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from device_agent import power
from device_agent.power import sensors
from tests.recipes import files
from tests.unit.device_agent.power import trees

SENSOR = "device_agent/power/sensors/battery.py"
FACTS = {"sensors": ["battery"]}


@pytest.fixture(autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The recipe's file in the folder of sensors, which is listed with this one."""
    added = tmp_path_factory.mktemp("sensors")
    (added / Path(SENSOR).name).write_text(files()[SENSOR])
    monkeypatch.setattr(sensors, "__path__", [*sensors.__path__, str(added)])
    yield added
    sys.modules.pop(f"{sensors.__name__}.battery", None)


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


def test_a_machine_whose_board_names_no_sensor_tries_it_by_its_order(tmp_path: Path, folder: Path) -> None:
    trees.write(tmp_path, "sys/class/power_supply/BAT0/power_now", 4_250_000)
    assert power.choose(str(tmp_path)).describe()["kind"] == "unavailable"
    sys.modules.pop(f"{sensors.__name__}.battery")
    (folder / "battery.py").write_text(files()[SENSOR].replace("order = None", "order = 70"))
    assert power.choose(str(tmp_path)).describe()["source"] == "battery"


def test_its_syntax_is_that_of_the_boards() -> None:
    ast.parse(files()[SENSOR], feature_version=(3, 8))
