"""The power chip of a Raspberry Pi 5: its listing, the sum of its rails, what it does not say."""

from __future__ import annotations

import pytest

from device_agent import power
from device_agent.power.sensors import rpi5_pmic
from device_agent.power.sensors.rpi5_pmic import Rpi5Wall
from tests.unit.device_agent.power import trees
from tests.unit.device_agent.power.trees import facts


def test_the_listing_of_a_raspberry_pi_5_has_the_known_sum():
    adc = rpi5_pmic.parse(trees.PMIC)
    assert len(adc.watts) == 12 and "EXT5V" not in adc.watts and "BATT" not in adc.watts
    assert sum(adc.watts.values()) == pytest.approx(10.800, abs=5e-4)
    assert adc.supply_v == pytest.approx(5.06788)


def test_a_raspberry_pi_5_is_measured_at_its_rails_and_estimated_at_the_wall(tmp_path):
    trees.pi5(tmp_path)
    sensor = power.choose(str(tmp_path), facts("raspberry_pi_5"))
    assert sensor.probe() is None and sensor.read() == pytest.approx(10.800, abs=5e-4)
    description = sensor.describe()
    assert (description["kind"], description["boundary"]) == ("measured", "pmic-rails")
    assert len(description["rails"]) == 12
    wall = Rpi5Wall(str(tmp_path))
    assert wall.probe() is None and wall.read() == pytest.approx(12.955, abs=5e-4)
    assert (wall.describe()["kind"], wall.describe()["boundary"]) == ("estimated", "wall")
    # An estimate is taken only where it is asked for by name.
    assert power.choose(str(tmp_path)).describe()["kind"] == "measured"
    wanted = power.choose(str(tmp_path), {"sensors": ["rpi5_wall"]})
    assert wanted.describe()["kind"] == "estimated"


def test_an_answer_with_fewer_rails_is_a_failed_reading(tmp_path):
    trees.pi5(tmp_path)
    sensor = power.choose(str(tmp_path), facts("raspberry_pi_5"))
    lines = [line for line in trees.PMIC.splitlines() if "HDMI_V" not in line]
    trees.write(tmp_path, "answers/pmic_read_adc", "\n".join(lines))
    with pytest.raises(OSError, match="11 rails in place of 12"):
        sensor.read()
    trees.write(tmp_path, "answers/pmic_read_adc", "nothing at all")
    with pytest.raises(ValueError, match="no rail"):
        sensor.read()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("echo 'VCHI initialization failed'; exit 255", "usermod -aG video"),
        ('echo "Can\'t open device file: /dev/vcio" >&2; exit 1', "/dev/vcio"),
        ("echo 'error=1 error_msg=\"Command not registered\"'", "this Raspberry Pi has no power sensor"),
        ("echo what", "no rail with voltage and current"),
    ],
)
def test_a_firmware_that_does_not_answer_is_a_reason(tmp_path, body, reason):
    trees.program(tmp_path, "vcgencmd", body)
    assert reason in power.choose(str(tmp_path), facts("raspberry_pi_5")).probe()


def test_a_missing_vcgencmd_says_what_to_install(tmp_path):
    assert "sudo apt install" in power.choose(str(tmp_path), facts("raspberry_pi_5")).probe()
