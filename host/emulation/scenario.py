"""Files that describe a simulated board (docs/replay.md), and what the agent is given of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from device_agent.contract.text import is_printable, printable
from host.errors import UserError
from host.execution.cores import usable_cores
from host.settings_file import read_table

# A file may come from elsewhere: beyond these bounds nothing is a board, and a simulation would not end.
_Hertz = Annotated[float, Field(ge=1e6, le=1e11)]
_Seconds = Annotated[float, Field(ge=1e-9, le=3600)]
_Factor = Annotated[float, Field(ge=1e-6, le=1e6)]
_Watts = Annotated[float, Field(ge=0, le=1e5)]
_Picojoules = Annotated[float, Field(ge=0, le=1e6)]
_Celsius = Annotated[float, Field(ge=-273.15, le=1000)]
_Share = Annotated[float, Field(ge=1e-3, le=1)]
_MOST = 1024


def _shown_text(text: str) -> str:
    if not text or not is_printable(text):
        raise ValueError("use visible characters of one line")
    return text


_Text = Annotated[str, Field(max_length=200), AfterValidator(_shown_text)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class MachineTable(_Table):
    """The machine's description of itself.

    Attributes:
        cpu_name: of its processor.
        frequency_hz: its full clock.
        frequencies_hz: clocks at which it can be held.
    """

    cpu_name: _Text = "simulated processor"
    frequency_hz: _Hertz = 1.5e9
    frequencies_hz: Annotated[tuple[_Hertz, ...], Field(max_length=_MOST)] = ()


class RecordedLatency(_Table):
    """One recorded latency: of a model in an engine, or of kernels by a pattern of their names."""

    name: _Text
    seconds: _Seconds


class LatencyTable(_Table):
    """How long work takes.

    Attributes:
        factor: seconds here for one second of this host, where nothing is recorded.
        spread: standard deviation of a latency's logarithm.
        models: by engine.
        kernels: by pattern of the name.
    """

    factor: _Factor = 1.0
    spread: Annotated[float, Field(ge=0, le=3)] = 0.0
    models: Annotated[tuple[RecordedLatency, ...], Field(max_length=_MOST)] = ()
    kernels: Annotated[tuple[RecordedLatency, ...], Field(max_length=_MOST)] = ()


class PowerTable(_Table):
    """Power, at the board's input.

    Attributes:
        idle_w: without work.
        active_w: all cores at work at full clock.
        exponent: of the clock in the power of work above idle.
        core_w: of a core at work at full clock, for kernels that are measured by themselves.
        multiply_add_pj, byte_pj: picojoules of a multiply-add, and of a byte to or from memory, for the same.
        noise_w: standard deviation of one reading.
        update_ms: how often the sensor has a new value.
    """

    idle_w: _Watts
    active_w: _Watts
    exponent: Annotated[float, Field(gt=0, le=10)] = 2.5
    core_w: _Watts = 0.0
    multiply_add_pj: _Picojoules = 0.0
    byte_pj: _Picojoules = 0.0
    noise_w: _Watts = 0.0
    update_ms: Annotated[int, Field(ge=1, le=60_000)] = 20

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

    ambient_c: _Celsius = 25.0
    resistance_c_per_w: Annotated[float, Field(ge=0, le=1e4)] = 3.0
    time_constant_s: Annotated[float, Field(ge=1e-3, le=1e6)] = 60.0
    limit_c: _Celsius = 85.0
    recover_c: _Celsius = 80.0
    throttled_speed: _Share = 0.6

    @model_validator(mode="after")
    def _recovers_below(self) -> ThermalTable:
        if self.recover_c >= self.limit_c:
            raise ValueError("recover_c has to be below limit_c")
        return self


class Scenario(_Table):
    """A simulated board; see docs/replay.md."""

    schema_version: Literal["edgetlm-replay/1"] = Field(alias="schema")
    title: _Text = "simulated board"
    seed: Annotated[int, Field(ge=0, lt=1 << 63)] = 0
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
            "cores": usable_cores(),
            "idle_w": power.idle_w,
            "active_w": power.active_w,
            "exponent": power.exponent,
            "core_w": power.core_w,
            "multiply_add_j": power.multiply_add_pj * 1e-12,
            "byte_j": power.byte_pj * 1e-12,
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
        return Scenario.model_validate(read_table(path))
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist; give a file as docs/replay.md describes it") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = printable(".".join(map(str, first["loc"])), 100)
        reason = printable(first["msg"], 200)
        raise UserError(f"{path}: {where}: {reason}; docs/replay.md describes the fields") from error
    except (OSError, ValueError) as error:
        reason = printable(error, 200)
        raise UserError(f"{path} cannot be read: {reason}; docs/replay.md describes the file") from error


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
