"""System trees of boards, laid out as their documentation says.

A recording of a real board, made by `device-agent record-sensors`, takes the place of its tree as soon as
somebody has
one: `device_agent.power.recording.unpack`.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from targets import board_for, declared

# github.com/jfikar/RPi5-power, README: a listing of a Raspberry Pi 5 under load. Its sum is 10.800 W, its
# estimate for the wall 12.955 W.
PMIC = """\
 3V7_WL_SW_A current(0)=0.00000000A
   3V3_SYS_A current(1)=0.06245952A
   1V8_SYS_A current(2)=0.16102850A
  DDR_VDD2_A current(3)=0.00780744A
  DDR_VDDQ_A current(4)=0.00000000A
   1V1_SYS_A current(5)=0.17566740A
    0V8_SW_A current(6)=0.32791250A
  VDD_CORE_A current(7)=10.87674000A
   3V3_DAC_A current(17)=0.00036630A
   3V3_ADC_A current(18)=0.00042735A
   0V8_AON_A current(16)=0.00579975A
      HDMI_A current(22)=0.01367520A
 3V7_WL_SW_V volt(8)=3.79999600V
   3V3_SYS_V volt(9)=3.30632200V
   1V8_SYS_V volt(10)=1.79828900V
  DDR_VDD2_V volt(11)=1.10292900V
  DDR_VDDQ_V volt(12)=0.60476130V
   1V1_SYS_V volt(13)=1.10439400V
    0V8_SW_V volt(14)=0.80256330V
  VDD_CORE_V volt(15)=0.89745940V
   3V3_DAC_V volt(20)=3.30494200V
   3V3_ADC_V volt(21)=3.30219400V
   0V8_AON_V volt(19)=0.79736190V
      HDMI_V volt(23)=5.07056000V
     EXT5V_V volt(24)=5.06788000V
      BATT_V volt(25)=3.01110800V
"""


def write(root: Path, path: str, content: object) -> Path:
    """One file of a tree."""
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{content}\n")
    return file


def program(root: Path, name: str, body: str) -> None:
    """A program of the board."""
    file = write(root, f"usr/bin/{name}", f"#!/bin/sh\n{body}")
    file.chmod(0o755)


def zone(root: Path, name: str, label: str, energy_uj: int, limit: int = 262143328850) -> Path:
    """A RAPL zone (Linux, Documentation/power/powercap/powercap.rst)."""
    folder = root / "sys/class/powercap" / name
    for file, content in (("name", label), ("energy_uj", energy_uj), ("max_energy_range_uj", limit)):
        write(folder, file, content)
    return folder


def ina3221(root: Path, device: str, rails: tuple[tuple[str, int, int], ...], index: int = 3) -> Path:
    """One chip by hwmon (Linux, Documentation/hwmon/ina3221.rst): label, mV and mA of each channel.

    With the shunt voltages in4 to in6, the sums in7 and curr4, and limits, which are no rails.
    """
    folder = root / "sys/bus/i2c/drivers/ina3221" / device / "hwmon" / f"hwmon{index}"
    write(folder, "name", "ina3221")
    for channel, (label, millivolts, milliamperes) in enumerate(rails, 1):
        write(folder, f"in{channel}_label", label)
        write(folder, f"in{channel}_enable", 1)
        write(folder, f"in{channel}_input", millivolts)
        write(folder, f"curr{channel}_input", milliamperes)
        write(folder, f"in{channel + 3}_input", milliamperes * 5)
        for limit in ("crit", "max"):
            write(folder, f"curr{channel}_{limit}_alarm", 0)
    write(folder, "in7_label", "sum of shunt voltages")
    write(folder, "in7_input", 5 * sum(rail[2] for rail in rails))
    write(folder, "curr4_input", sum(rail[2] for rail in rails))
    write(folder, "update_interval", 1)
    write(folder, "samples", 16)
    link = root / "sys/class/hwmon" / f"hwmon{index}"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(folder)
    return folder


def orin_nano(root: Path) -> Path:
    """Jetson Linux Developer Guide, release 36, "Jetson Orin Nano ...: INA3221 Power Monitors"."""
    rails = (("VDD_IN", 4912, 1200), ("VDD_CPU_GPU_CV", 4912, 300), ("VDD_SOC", 4912, 400))
    return ina3221(root, "1-0040", rails)


def agx_orin(root: Path) -> tuple[Path, Path]:
    """The same guide, "Jetson AGX Orin": two chips, two channels of the second unconnected."""
    first = (("VDD_GPU_SOC", 19000, 200), ("VDD_CPU_CV", 19000, 100), ("VIN_SYS_5V0", 4900, 800))
    second = (("NC", 0, 0), ("VDDQ_VDD2_1V8AO", 4900, 150), ("NC", 0, 0))
    return ina3221(root, "1-0040", first, 3), ina3221(root, "1-0041", second, 4)


def nano(root: Path) -> Path:
    """Tegra Linux Driver Package Development Guide, release 32, "Power Management for Jetson Nano": iio."""
    folder = root / "sys/bus/i2c/drivers/ina3221x/6-0040/iio:device0"
    rails = (("POM_5V_IN", 2500, 5000, 500), ("POM_5V_GPU", 200, 5000, 40), ("POM_5V_CPU", 800, 5000, 160))
    for index, (label, milliwatts, millivolts, milliamperes) in enumerate(rails):
        write(folder, f"rail_name_{index}", label)
        write(folder, f"in_power{index}_input", milliwatts)
        write(folder, f"in_voltage{index}_input", millivolts)
        write(folder, f"in_current{index}_input", milliamperes)
        write(folder, f"crit_current_limit_{index}", 5000)
    return folder


def thor(root: Path) -> Path:
    """INA238 (Linux, Documentation/hwmon/ina238.rst) at VIN, an INA3221, and USB-C supplies."""
    folder = root / "sys/class/hwmon/hwmon5"
    files = {"name": "ina238", "power1_input": 31_500_000, "in1_input": 19_900, "curr1_input": 1583}
    for file, content in files.items():
        write(folder, file, content)
    ina3221(root, "2-0040", (("VDD_GPU", 19000, 200), ("VDD_CPU_SOC_MSS", 19000, 300), ("NC", 0, 0)), 4)
    supply = root / "sys/class/power_supply/ucsi-source-psy-2-00081"
    write(supply, "voltage_now", 20_000_000)
    write(supply, "current_now", 3_000_000)
    return folder


def pi5(root: Path, listing: str = PMIC, throttled: str = "0x0") -> None:
    """Raspberry Pi documentation, "vcgencmd": answers of `pmic_read_adc` and `get_throttled`."""
    write(root, "answers/pmic_read_adc", listing)
    write(root, "answers/get_throttled", f"throttled={throttled}")
    program(root, "vcgencmd", f'cat "{root}/answers/$1"')


def energy_chip(root: Path, microjoules: int = 5_000_000) -> Path:
    """A chip that counts energy and says nowhere when it wraps (Documentation/hwmon/ltc2947.rst)."""
    folder = root / "sys/class/hwmon/hwmon0"
    for file, content in {"name": "ltc2947", "energy1_input": microjoules, "power1_input": 7_000_000}.items():
        write(folder, file, content)
    return folder


def power_chip(root: Path, chip: str = "ina226", index: int = 0, **files: object) -> Path:
    """A breakout of Documentation/hwmon/ina2xx.rst on a board without a sensor of its own."""
    folder = root / "sys/class/hwmon" / f"hwmon{index}"
    for file, content in {"name": chip, **files}.items():
        write(folder, file, content)
    return folder


def facts(name):
    """What the host sends of a board."""
    return board_for(declared()[name]).facts()


def refuse(monkeypatch, end, code=errno.EACCES):
    """Refuses to open files whose paths end so: root may open every file."""
    real = os.open

    def guarded(path, *arguments, **options):
        if str(path).endswith(end):
            raise OSError(code, os.strerror(code), str(path))
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", guarded)
