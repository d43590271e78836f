"""Sensors of Jetsons and other chips on trees laid out as documented, and which sensor is chosen."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from device_agent import power
from device_agent.board import sysfs
from device_agent.power.sensors import known_sensors
from device_agent.power.sensors.hwmon import Hwmon
from device_agent.power.sensors.ina3221 import Ina3221, connected
from targets import declared
from tests.unit.device_agent.power import trees
from tests.unit.device_agent.power.trees import facts, refuse


def open_files():
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_a_total_rail_counts_alone(tmp_path):
    trees.orin_nano(tmp_path)
    for board in (None, facts("jetson_orin_nano")):
        sensor = power.choose(str(tmp_path), board)
        assert sensor.probe() is None
        assert sensor.read() == pytest.approx(4.912 * 1.2)
        description = sensor.describe()
        assert (description["source"], description["kind"]) == ("ina3221", "measured")
        assert description["rails"] == ["VDD_IN"] and description["boundary"] == "module"
        assert description["parts"] == ["VDD_CPU_GPU_CV", "VDD_SOC"]
        assert description["chips"] == [{"samples": 16, "update_interval_ms": 1}]
        assert sensor.period_s == sysfs.FASTEST_S
        sensor.close()


def test_without_a_total_the_list_of_the_board_is_summed(tmp_path):
    trees.agx_orin(tmp_path)
    for board in (None, facts("jetson_agx_orin")):
        sensor = power.choose(str(tmp_path), board)
        assert sensor.probe() is None
        # VDDQ hangs off VIN_SYS_5V0; NC, shunt voltages and sums are no rails.
        assert sensor.read() == pytest.approx(19.0 * 0.2 + 19.0 * 0.1 + 4.9 * 0.8)
        assert sensor.describe()["parts"] == ["VDDQ_VDD2_1V8AO"]
        assert sensor.describe()["boundary"] == "module"


def test_jetpack_4_gives_power_in_milliwatts(tmp_path):
    trees.nano(tmp_path)
    for board in (None, facts("jetson_nano")):
        sensor = power.choose(str(tmp_path), board)
        assert sensor.probe() is None and sensor.read() == pytest.approx(2.5)
        assert sensor.describe()["rails"] == ["POM_5V_IN"]
        assert sensor.describe()["parts"] == ["POM_5V_GPU", "POM_5V_CPU"]


def test_thor_is_measured_at_its_input(tmp_path):
    trees.thor(tmp_path)
    for board in (None, facts("jetson_agx_thor")):
        sensor = power.choose(str(tmp_path), board)
        assert sensor.probe() is None and sensor.read() == pytest.approx(31.5)
        description = sensor.describe()
        assert (description["source"], description["rails"]) == ("ina238", ["VIN"])
        assert description["boundary"] == "board"


def test_slow_chips_are_read_as_often_as_they_convert(tmp_path):
    folder = trees.orin_nano(tmp_path)
    trees.write(folder, "update_interval", 250)
    sensor = Ina3221(str(tmp_path))
    assert sensor.probe() is None and sensor.period_s == 0.25


def test_chips_are_found_by_name_where_the_driver_has_no_folder(tmp_path):
    folder = trees.orin_nano(tmp_path)
    for index, chip in ((0, "nvme"), (1, "cpu_thermal")):
        trees.write(tmp_path, f"sys/class/hwmon/hwmon{index}/name", chip)
    target = tmp_path / "sys/class/hwmon/hwmon3"
    target.unlink()
    folder.rename(target)
    sensor = Ina3221(str(tmp_path))
    assert sensor.probe() is None and sensor.read() == pytest.approx(4.912 * 1.2)


def test_a_rail_that_is_missing_is_named_and_nothing_is_summed_in_its_place(tmp_path):
    trees.agx_orin(tmp_path)
    sensor = power.choose(str(tmp_path), facts("jetson_orin_nano"))
    assert "board jetson_orin_nano has no rail VDD_IN" in sensor.probe()
    assert "VDD_GPU_SOC" in sensor.probe()
    folder = tmp_path / "sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon3"
    trees.write(folder, "in2_label", "VDD_OTHER")
    reason = Ina3221(str(tmp_path)).probe()
    assert "none of the rails" in reason and "`rails`" in reason
    trees.write(folder, "in2_label", "VDD_GPU_SOC")
    assert "two rails are called VDD_GPU_SOC" in Ina3221(str(tmp_path)).probe()


@pytest.mark.parametrize(
    ("label", "is_rail"), [("VDD_IN", True), ("NC", False), ("NC_2", False), ("VSYNC", True), (None, False)]
)
def test_unconnected_channels_are_no_rails(label, is_rail):
    assert connected(label) == is_rail


def test_disabled_channels_are_no_rails(tmp_path):
    folder = trees.orin_nano(tmp_path)
    trees.write(folder, "in1_enable", 0)
    assert "none of the rails" in Ina3221(str(tmp_path)).probe()


def test_a_reading_that_fails_leaves_the_next_one_alone(tmp_path, monkeypatch):
    trees.orin_nano(tmp_path)
    sensor = Ina3221(str(tmp_path))
    assert sensor.probe() is None
    real, failures = os.pread, [errno.EAGAIN, errno.EIO, errno.ENODEV]

    def flaky(descriptor, count, offset):
        if failures:
            raise OSError(failures.pop(), "fails")
        return real(descriptor, count, offset)

    monkeypatch.setattr(os, "pread", flaky)
    for code in (errno.ENODEV, errno.EIO, errno.EAGAIN):
        with pytest.raises(OSError, match="fails") as caught:
            sensor.read()
        assert caught.value.errno == code and str(caught.value.filename).endswith("in1_input")
    assert sensor.read() == pytest.approx(4.912 * 1.2)


def test_one_failing_read_does_not_make_a_sensor_unavailable(tmp_path, monkeypatch):
    trees.orin_nano(tmp_path)
    real, failures = os.pread, [errno.EAGAIN]

    def flaky(descriptor, count, offset):
        if failures:
            raise OSError(failures.pop(), "try again")
        return real(descriptor, count, offset)

    monkeypatch.setattr(os, "pread", flaky)
    assert Ina3221(str(tmp_path)).probe() is None


def test_values_are_read_anew_from_files_that_stay_open(tmp_path):
    folder = trees.orin_nano(tmp_path)
    sensor = Ina3221(str(tmp_path))
    assert sensor.probe() is None
    before = open_files()
    for milliamperes in range(100, 2000, 100):
        trees.write(folder, "curr1_input", milliamperes)
        assert sensor.read() == pytest.approx(4.912e-3 * milliamperes)
    assert open_files() == before
    sensor.close()
    assert open_files() == before - 2


@pytest.mark.parametrize(
    ("make", "file", "said"),
    [
        (trees.orin_nano, "curr1_input", "INA3221"),
        (trees.nano, "in_power0_input", "INA3221"),
        (trees.thor, "power1_input", "INA238"),
        (trees.power_chip, "power1_input", "hwmon"),
    ],
)
def test_without_permission_the_reason_says_what_to_type(tmp_path, monkeypatch, make, file, said):
    if make is trees.power_chip:
        make(tmp_path, power1_input=1)
    else:
        make(tmp_path)
    refuse(monkeypatch, file)
    reason = power.choose(str(tmp_path)).probe()
    assert f"{said} cannot be read: no permission for {tmp_path}" in reason
    assert "sudo chmod a+r" in reason and "--system" in reason
    assert power.choose(str(tmp_path)).describe()["source"] == "none"


def test_the_best_quantity_of_a_chip_is_read(tmp_path):
    folder = trees.energy_chip(tmp_path)
    sensor = power.choose(str(tmp_path))
    assert sensor.describe()["quantity"] == "energy" and sensor.read() == [5_000_000]
    assert sensor.joules([5_000_000], [7_500_000]) == pytest.approx(2.5)
    # Nobody knows where it wraps: what happened in between is not known.
    assert sensor.joules([5_000_000], [100]) is None
    (folder / "energy1_input").unlink()
    trees.write(folder, "power1_average", 6_000_000)
    sensor = power.choose(str(tmp_path))
    assert sensor.quantity == "power" and sensor.read() == pytest.approx(6.0)
    (folder / "power1_average").unlink()
    assert power.choose(str(tmp_path)).read() == pytest.approx(7.0)
    (folder / "power1_input").unlink()
    for file, content in {"in1_input": 5000, "curr1_input": 900}.items():
        trees.write(folder, file, content)
    assert power.choose(str(tmp_path)).read() == pytest.approx(4.5)


def test_voltage_and_current_are_paired_by_label(tmp_path):
    files = {"curr1_label": "input", "curr1_input": 1000, "in1_label": "aux", "in1_input": 3300}
    trees.power_chip(tmp_path, "ina219", 0, in2_label="input", in2_input=5000, **files)
    sensor = Hwmon(str(tmp_path))
    assert sensor.probe() is None and sensor.read() == pytest.approx(5.0)
    assert sensor.describe()["rails"] == ["input"]


def test_several_rails_need_the_boards_word(tmp_path):
    trees.power_chip(tmp_path, "ina226", 0, label="input", power1_input=5_000_000)
    trees.power_chip(tmp_path, "ina226", 1, label="usb", power1_input=1_000_000)
    reason = power.choose(str(tmp_path)).probe()
    assert "none of the rails input, usb is known to be the total" in reason
    board = {"name": "mine", "sensors": ["hwmon"], "rails": ["input"], "boundary": "dc-input"}
    sensor = power.choose(str(tmp_path), board)
    assert sensor.read() == pytest.approx(5.0)
    assert (sensor.describe()["boundary"], sensor.describe()["parts"]) == ("dc-input", ["usb"])


def test_unknown_chips_are_not_guessed_at(tmp_path):
    trees.power_chip(tmp_path, "acpi_power_meter", power1_input=5)
    assert "no hwmon power chip" in Hwmon(str(tmp_path)).probe()


def test_a_machine_without_sensors_says_so(tmp_path):
    sensor = power.choose(str(tmp_path))
    assert "no RAPL" in sensor.probe() and "external meter" in sensor.probe()
    with pytest.raises(OSError, match="no RAPL"):
        sensor.read()
    assert power.summary(sensor)["unavailable"] == sensor.probe()


def test_a_board_that_names_its_sensor_gets_no_other(rapl):
    reason = power.choose(str(rapl), facts("jetson_orin_nano")).probe()
    assert reason.startswith("no INA3221")
    assert "no sensor is called thermometer" in power.choose(str(rapl), {"sensors": ["thermometer"]}).probe()


def test_what_the_host_says_of_every_board_makes_sense_here():
    for name, board in ((name, facts(name)) for name in declared()):
        for sensor in board["sensors"]:
            assert sensor in known_sensors(), f"{name} wants {sensor}"


def test_facts_come_with_the_meter_beside_them(tmp_path):
    assert power.board_facts(None) is None
    assert power.board_facts(str(tmp_path / "board.json")) is None
    (tmp_path / "board.json").write_text('{"name": "mine", "sensors": ["rapl"]}')
    (tmp_path / "meter.json").write_text('{"command": ["true"]}')
    found = power.board_facts(str(tmp_path / "board.json"))
    assert found == {"name": "mine", "sensors": ["rapl"], "meter": {"command": ["true"]}}
    (tmp_path / "meter.json").write_text("{")
    with pytest.raises(ValueError, match=r"meter\.json cannot be read"):
        power.board_facts(str(tmp_path / "board.json"))
