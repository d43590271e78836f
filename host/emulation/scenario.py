"""Files that describe a simulated board (docs/replay.md), and what the agent is given of them."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from host.errors import UserError

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Share = Annotated[float, Field(gt=0, le=1)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class MachineTable(_Table):
    """What the machine says of itself.

    Attributes:
        cpu_name: of its processor.
        frequency_hz: its full clock.
        frequencies_hz: clocks at which it can be held.
    """

    cpu_name: str = "simulated processor"
    frequency_hz: _Positive = 1.5e9
    frequencies_hz: tuple[_Positive, ...] = ()


class RecordedLatency(_Table):
    """One recorded latency: of a model in an engine, or of kernels by a pattern of their names."""

    name: str
    seconds: _Positive


class LatencyTable(_Table):
    """How long work takes.

    Attributes:
        factor: seconds here for one second of this host, where nothing is recorded.
        spread: standard deviation of a latency's logarithm.
        models: by engine.
        kernels: by pattern of the name.
    """

    factor: _Positive = 1.0
    spread: _NotNegative = 0.0
    models: tuple[RecordedLatency, ...] = ()
    kernels: tuple[RecordedLatency, ...] = ()


class PowerTable(_Table):
    """Power, at the board's input.

    Attributes:
        idle_w: without work.
        active_w: all cores at work at full clock.
        exponent: of the clock in the power of work above idle.
        noise_w: standard deviation of one reading.
        update_ms: how often the sensor has a new value.
    """

    idle_w: _NotNegative
    active_w: _Positive
    exponent: _Positive = 2.5
    noise_w: _NotNegative = 0.0
    update_ms: Annotated[int, Field(ge=1)] = 20

    @model_validator(mode="after")
    def _work_costs(self) -> PowerTable:
        if self.active_w <= self.idle_w:
            raise ValueError("active_w has to be above idle_w")
        return self


class ThermalTable(_Table):
    """First-order heating.

    Attributes:
        ambient_c: temperature without power.
        resistance_c_per_w: degrees for each watt, in the end.
        time_constant_s: seconds until 63% of that.
        limit_c, recover_c: where throttling begins and ends.
        throttled_speed: share of the clock meanwhile.
    """

    ambient_c: float = 25.0
    resistance_c_per_w: _NotNegative = 3.0
    time_constant_s: _Positive = 60.0
    limit_c: float = 85.0
    recover_c: float = 80.0
    throttled_speed: _Share = 0.6

    @model_validator(mode="after")
    def _recovers_below(self) -> ThermalTable:
        if self.recover_c >= self.limit_c:
            raise ValueError("recover_c has to be below limit_c")
        return self


class Scenario(_Table):
    """A simulated board; see docs/replay.md."""

    schema_version: Literal["edgetlm-replay/1"] = Field(alias="schema")
    title: str = "simulated board"
    seed: int = 0
    machine: MachineTable = MachineTable()
    latency: LatencyTable = LatencyTable()
    power: PowerTable
    thermal: ThermalTable = ThermalTable()

    def for_agent(self) -> dict[str, Any]:
        """The fields of the agent's own reading of it."""
        power, latency = self.power, self.latency
        return {
            "seed": self.seed,
            "factor": latency.factor,
            "spread": latency.spread,
            "models": [one.model_dump() for one in latency.models],
            "kernels": [one.model_dump() for one in latency.kernels],
            "cores": len(os.sched_getaffinity(0)),
            "idle_w": power.idle_w,
            "active_w": power.active_w,
            "exponent": power.exponent,
            "noise_w": power.noise_w,
            "thermal": self.thermal.model_dump(),
        }


def read_scenario(path: Path) -> Scenario:
    """Read a file.

    Args:
        path: TOML, or JSON where it is called so.

    Raises:
        UserError: it does not exist or does not describe a board; the message says what is wrong.
    """
    try:
        text = path.read_text(encoding="utf-8")
        fields = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
        return Scenario.model_validate(fields)
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist; give a file as docs/replay.md describes it") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UserError(f"{path}: {where}: {first['msg']}; docs/replay.md describes the fields") from error
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}; docs/replay.md describes the file") from error


def write_system(scenario: Scenario, folder: Path) -> None:
    """Write the /proc and /sys in which the agent finds the board."""
    machine = scenario.machine
    policy = "sys/devices/system/cpu/cpufreq/policy0"
    khz = [round(hz / 1e3) for hz in sorted({*machine.frequencies_hz, machine.frequency_hz})]
    lowest, highest = khz[0], khz[-1]
    chip = "sys/class/hwmon/hwmon0"
    files = {
        "proc/cpuinfo": _cpuinfo(machine.cpu_name, machine.frequency_hz),
        "proc/meminfo": Path("/proc/meminfo").read_text(),
        f"{policy}/scaling_governor": "performance\n",
        f"{policy}/scaling_available_governors": "performance powersave\n",
        f"{policy}/scaling_available_frequencies": " ".join(map(str, khz)) + "\n",
        f"{policy}/scaling_min_freq": f"{lowest}\n",
        f"{policy}/scaling_max_freq": f"{highest}\n",
        f"{policy}/cpuinfo_min_freq": f"{lowest}\n",
        f"{policy}/cpuinfo_max_freq": f"{highest}\n",
        f"{policy}/scaling_cur_freq": f"{highest}\n",
        "sys/class/thermal/thermal_zone0/type": "cpu-thermal\n",
        "sys/class/thermal/thermal_zone0/temp": f"{scenario.thermal.ambient_c * 1000:.0f}\n",
        "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "0\n",
        # A known chip at the board's input, so that the agent's own sensor reads it.
        f"{chip}/name": "ina226\n",
        f"{chip}/update_interval": f"{scenario.power.update_ms}\n",
        f"{chip}/power1_label": "VIN\n",
        f"{chip}/power1_input": f"{scenario.power.idle_w * 1e6:.0f}\n",
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _cpuinfo(name: str, frequency_hz: float) -> str:
    """This machine's own, since programs run here, under another name and clock."""
    lines = []
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key = line.partition(":")[0].strip()
        if key == "model name":
            line = f"model name\t: {name}"
        elif key == "cpu MHz":
            line = f"cpu MHz\t\t: {frequency_hz / 1e6:.3f}"
        lines.append(line)
    return "\n".join(lines) + "\n"
