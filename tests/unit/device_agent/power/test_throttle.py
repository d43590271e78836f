"""What slows a board down, from trees and answers laid out as documented."""

from __future__ import annotations

import pytest

from device_agent.board.machine import Machine
from device_agent.board.throttle import FIRMWARE, Throttle, slowed_now, verdict
from tests.unit.device_agent.power import trees


@pytest.mark.parametrize(
    ("before", "during", "after", "reasons", "invalid"),
    [
        (0x0, 0x0, 0x0, (), False),
        # What happened before stays set until the next start and says nothing of this run.
        (0xF0000, 0xF0000, 0xF0000, (), False),
        (0x0, 0x4, 0x40000, ("throttled",), False),
        (0x0, 0x0, 0x20000, ("frequency capped",), False),
        (0x80000, 0x80008, 0x80000, ("soft temperature limit",), False),
        (0x0, 0x0, 0x50000, ("under-voltage", "throttled"), True),
        (0x10000, 0x10001, 0x10000, ("under-voltage",), True),
        (0x10000, 0x10000, 0x10000, (), False),
    ],
)
def test_bits_of_a_raspberry_pi(before, during, after, reasons, invalid):
    found = verdict({FIRMWARE: before}, [{FIRMWARE: during}], {FIRMWARE: after})
    assert found.reasons == reasons
    assert found.throttled == bool(reasons)
    assert ("supply" in found.invalid) == invalid


def test_the_firmware_is_asked(tmp_path):
    trees.pi5(tmp_path, throttled="0x50005")
    throttle = Throttle(str(tmp_path))
    assert throttle.flags() == {FIRMWARE: 0x50005}
    # A single answer that does not come is no reason not to ask again.
    trees.write(tmp_path, "answers/get_throttled", "VCHI initialization failed")
    assert throttle.flags() == {}
    trees.write(tmp_path, "answers/get_throttled", "throttled=0x0")
    assert throttle.flags() == {FIRMWARE: 0}


def test_a_firmware_that_never_answered_is_not_asked_again(tmp_path):
    trees.program(tmp_path, "vcgencmd", f'echo asked >> "{tmp_path}/log"; exit 1')
    throttle = Throttle(str(tmp_path))
    assert throttle.flags() == {} and throttle.flags() == {}
    assert (tmp_path / "log").read_text() == "asked\n"


def jetson(root):
    """Jetson Linux Developer Guide, "Electrical Management"; driver soctherm_oc; Linux thermal sysfs API."""
    folder = trees.orin_nano(root)
    events = root / "sys/class/hwmon/hwmon1"
    trees.write(events, "name", "soctherm_oc")
    for index in (1, 2, 3):
        trees.write(events, f"oc{index}_event_cnt", 0)
        trees.write(events, f"oc{index}_throt_en", 1)
    for index, (kind, state) in enumerate(
        (("pwm-fan", 3), ("cpufreq-cpu0", 0), ("17000000.gpu-devfreq", 0), ("hot-surface-alert", 1))
    ):
        trees.write(root, f"sys/class/thermal/cooling_device{index}/type", kind)
        trees.write(root, f"sys/class/thermal/cooling_device{index}/cur_state", state)
    return folder, events


def test_evidence_of_a_jetson(tmp_path):
    folder, events = jetson(tmp_path)
    throttle = Throttle(str(tmp_path))
    before = throttle.flags()
    # Fans cool and slow nothing down; alerts are notices.
    assert set(before) == {
        *(f"alarm:{rail} {limit}_alarm" for rail in RAILS for limit in ("crit", "max")),
        *("oc1_event_cnt", "oc2_event_cnt", "oc3_event_cnt"),
        *("cooling:cpufreq-cpu0", "cooling:17000000.gpu-devfreq"),
    }
    assert not verdict(before, [], throttle.flags()).throttled
    trees.write(events, "oc3_event_cnt", 27)
    trees.write(folder, "curr1_crit_alarm", 1)
    trees.write(tmp_path, "sys/class/thermal/cooling_device1/cur_state", 2)
    found = verdict(before, [], throttle.flags())
    assert found.reasons == (
        "current limit: VDD_IN crit_alarm",
        "cpufreq-cpu0 holds the clock down (state 2)",
        "over-current: 27 events (oc3_event_cnt)",
    )
    assert found.invalid == ""
    assert slowed_now(throttle.flags())
    trees.write(events, "oc1_event_cnt", 1)
    assert "supply is too weak" in verdict(before, [], throttle.flags()).invalid


RAILS = ("VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC")


def test_what_happened_in_between_is_not_missed(tmp_path):
    jetson(tmp_path)
    throttle = Throttle(str(tmp_path))
    before = throttle.flags()
    trees.write(tmp_path, "sys/class/thermal/cooling_device2/cur_state", 1)
    during = throttle.flags()
    trees.write(tmp_path, "sys/class/thermal/cooling_device2/cur_state", 0)
    assert verdict(before, [during], throttle.flags()).reasons == (
        "17000000.gpu-devfreq holds the clock down (state 1)",
    )


def test_an_alarm_that_stands_since_before_is_no_news(tmp_path):
    folder, _ = jetson(tmp_path)
    trees.write(folder, "curr2_max_alarm", 1)
    throttle = Throttle(str(tmp_path))
    before = throttle.flags()
    assert not verdict(before, [before], throttle.flags()).throttled


def test_cores_of_x86_count_together(tmp_path):
    for core, count in enumerate((3, 4)):
        trees.write(tmp_path, f"sys/devices/system/cpu/cpu{core}/thermal_throttle/core_throttle_count", count)
    throttle = Throttle(str(tmp_path))
    before = throttle.flags()
    assert before == {"core_throttle_count": 7}
    trees.write(tmp_path, "sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count", 9)
    assert verdict(before, [], throttle.flags()).reasons == ("cores throttled 5 times",)


def test_the_state_has_flags_fans_and_zones(tmp_path):
    jetson(tmp_path)
    fan = tmp_path / "sys/class/hwmon/hwmon7"
    for file, content in {"name": "pwmfan", "fan1_input": 2140}.items():
        trees.write(fan, file, content)
    for index, (kind, milli) in enumerate((("cpu-thermal", 48_250), ("gpu-thermal", 51_000))):
        trees.write(tmp_path, f"sys/class/thermal/thermal_zone{index}/type", kind)
        trees.write(tmp_path, f"sys/class/thermal/thermal_zone{index}/temp", milli)
    machine = Machine(str(tmp_path))
    state = machine.state()
    assert state["temperatures_c"] == {"thermal_zone0.cpu-thermal": 48.25, "thermal_zone1.gpu-thermal": 51.0}
    assert state["fans_rpm"] == {"pwmfan.fan1": 2140.0}
    assert state["throttle"]["oc3_event_cnt"] == 0
    assert machine.hottest_c() == 51.0
    # A zone of a part that is powered down cannot be read; the others can.
    trees.write(tmp_path, "sys/class/thermal/thermal_zone1/temp", "")
    assert machine.hottest_c() == 48.25


def test_the_state_says_how_the_board_is_set(tmp_path):
    """Jetson Linux Developer Guide: cpufreq and devfreq nodes of an Orin; `nvpmodel -q`."""
    policy = tmp_path / "sys/devices/system/cpu/cpufreq/policy0"
    for file, content in {
        "scaling_governor": "schedutil",
        "scaling_min_freq": 729_600,
        "scaling_max_freq": 1_510_400,
        "scaling_cur_freq": 1_190_400,
    }.items():
        trees.write(policy, file, content)
    for file, content in {"cur_freq": 306_000_000, "governor": "nvhost_podgov"}.items():
        trees.write(tmp_path, f"sys/class/devfreq/17000000.gpu/{file}", content)
    trees.program(tmp_path, "nvpmodel", "echo 'NV Power Mode: 15W'; echo 0")
    machine = Machine(str(tmp_path))
    state = machine.state()
    assert state["governors"] == {"policy0": "schedutil"} and state["clocks_hz"] == [1_190_400_000.0]
    assert state["limits_hz"] == {"policy0": [729_600_000.0, 1_510_400_000.0]}
    assert state["devfreq"] == {"17000000.gpu": {"clock_hz": 306e6, "governor": "nvhost_podgov"}}
    assert machine.power_mode() == "15W"
    trees.program(tmp_path, "nvpmodel", "echo 'NVPM ERROR: no permission'; exit 1")
    assert Machine(str(tmp_path)).power_mode() is None
    assert Machine(str(tmp_path / "elsewhere")).power_mode() is None
