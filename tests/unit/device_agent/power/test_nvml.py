"""NVML by a library of the test's own: codes and values as the NVML API reference says."""

from __future__ import annotations

import pytest

from device_agent import power
from device_agent.power.sensors.nvml import Nvml
from tests.unit.device_agent.power import trees

NOT_SUPPORTED = 3


class Library:
    """A GPU with an energy counter in millijoules and power in milliwatts, as far as they are supported."""

    def __init__(self, energy=None, power=None, initialises=0):
        self.energy, self.power, self.initialises = energy, power, initialises
        self.open = 0

    def nvmlInit_v2(self):  # noqa: N802
        self.open += not self.initialises
        return self.initialises

    def nvmlShutdown(self):  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetHandleByIndex_v2(self, index, handle):  # noqa: N802
        assert index == 0
        handle._obj.value = 1
        return 0

    def nvmlDeviceGetName(self, handle, name, size):  # noqa: N802
        name.value = b"GPU of the test"
        return 0

    def nvmlDeviceGetTotalEnergyConsumption(self, handle, value):  # noqa: N802
        return self._give(value, self.energy)

    def nvmlDeviceGetPowerUsage(self, handle, value):  # noqa: N802
        return self._give(value, self.power)

    def _give(self, value, number):
        if number is None:
            return NOT_SUPPORTED
        value._obj.value = number
        return 0


@pytest.fixture(autouse=True)
def first_gpu(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_the_counter_is_preferred_and_counts_millijoules(tmp_path):
    library = Library(energy=5000, power=250_000)
    sensor = Nvml(str(tmp_path), load=lambda name: library)
    assert sensor.probe() is None and sensor.quantity == "energy"
    before = sensor.read()
    library.energy = 7500
    assert sensor.joules(before, sensor.read()) == pytest.approx(2.5)
    assert sensor.joules([7500], [10]) is None
    assert sensor.describe()["rails"] == ["GPU of the test"] and sensor.describe()["boundary"] == "gpu"
    sensor.close()
    assert library.open == 0


def test_power_in_milliwatts_stands_in_for_a_missing_counter(tmp_path):
    sensor = Nvml(str(tmp_path), load=lambda name: Library(power=250_000))
    assert sensor.probe() is None and sensor.quantity == "power"
    assert sensor.read() == pytest.approx(250.0)


def test_a_library_that_initialises_and_answers_nothing_is_unavailable(tmp_path):
    """What NVML does on a Jetson: an availability check passes, every value is NotSupported."""
    reason = Nvml(str(tmp_path), load=lambda name: Library()).probe()
    assert "gives no value" in reason and "not supported" in reason


def test_on_a_jetson_it_is_never_asked(tmp_path):
    trees.write(tmp_path, "proc/device-tree/compatible", "nvidia,p3768-0000\0nvidia,tegra234\0")
    sensor = Nvml(str(tmp_path), load=lambda name: Library(power=1))
    assert "on a Jetson" in sensor.probe()
    assert power.choose(str(tmp_path)).probe() is not None


def test_without_driver_or_library_there_is_a_reason(tmp_path):
    assert "driver is not loaded" in Nvml(str(tmp_path), load=lambda name: Library(initialises=9)).probe()

    def missing(name):
        raise OSError(name)

    assert "is not installed" in Nvml(str(tmp_path), load=missing).probe()
