"""The description of a simulated board, as the host sends it (docs/replay.md)."""

from __future__ import annotations

import fnmatch
import json
from typing import Any, Dict, List, NamedTuple, Optional

from device_agent.contract.fields import is_number

# Of anything that a program does in one call.
_MOST = 1e15


class Latency(NamedTuple):
    """A recorded latency.

    Attributes:
        name: pattern of a kernel's name, or the engine of a model.
        seconds: of one call at full clock.
    """

    name: str
    seconds: float


class Thermal(NamedTuple):
    """First-order heating, and what happens at the limit.

    Attributes:
        ambient_c: temperature without any power.
        resistance_c_per_w: how much warmer it gets for each watt, in the end.
        time_constant_s: seconds until 63% of that.
        limit_c: temperature at which the clock is lowered.
        recover_c: temperature at which it is raised again.
        throttled_speed: share of the clock meanwhile.
    """

    ambient_c: float
    resistance_c_per_w: float
    time_constant_s: float
    limit_c: float
    recover_c: float
    throttled_speed: float


class Program(NamedTuple):
    """What a program does in one call, as the host tells it: nothing counts it here.

    Attributes:
        cores: that it keeps busy.
        multiply_adds: of one call.
        bytes: between memory and the last cache, of one call.
    """

    cores: float
    multiply_adds: float
    bytes: float


class Scenario(NamedTuple):
    """A simulated board.

    Attributes:
        seed: of all noise.
        factor: seconds here for one second of this machine, where nothing was recorded.
        spread: standard deviation of a latency's logarithm.
        models: latencies of whole models by engine.
        kernels: latencies of kernels by name.
        cores: of the board, for the share that a number of threads uses.
        idle_w: power without work.
        active_w: power with all cores at work at full clock.
        exponent: of the clock in the power of work.
        core_w: power of a core at work at full clock, for kernels whose program is told.
        multiply_add_j: energy of a multiply-add, for the same.
        byte_j: energy of a byte to or from memory, for the same.
        noise_w: standard deviation of a reading of the sensor.
        thermal: heating.
    """

    seed: int
    factor: float
    spread: float
    models: List[Latency]
    kernels: List[Latency]
    cores: int
    idle_w: float
    active_w: float
    exponent: float
    core_w: float
    multiply_add_j: float
    byte_j: float
    noise_w: float
    thermal: Thermal

    @property
    def knows_programs(self) -> bool:
        """Whether the power of a kernel depends on its program."""
        return bool(self.core_w or self.multiply_add_j or self.byte_j)

    def model_s(self, engine: str) -> Optional[float]:
        """Recorded latency of a whole model, None where there is none."""
        return next((one.seconds for one in self.models if one.name == engine), None)

    def kernel_s(self, name: str) -> Optional[float]:
        """Recorded latency of a kernel, None where there is none."""
        return next((one.seconds for one in self.kernels if fnmatch.fnmatchcase(name, one.name)), None)


def program_of(fields: Any) -> Optional[Program]:
    """The program in the specification of a kernel; None where it tells none, or impossible figures."""
    if not isinstance(fields, dict):
        return None
    values = [float(fields[name]) for name in Program._fields if is_number(fields.get(name))]
    if len(values) < len(Program._fields) or not all(0.0 <= one <= _MOST for one in values):
        return None
    return Program(*values)


def load(path: str) -> Scenario:
    """Reads a scenario as the host wrote it."""
    with open(path, encoding="utf-8") as file:
        fields: Dict[str, Any] = json.load(file)
    fields["thermal"] = Thermal(**fields["thermal"])
    for name in ("models", "kernels"):
        fields[name] = [Latency(**one) for one in fields[name]]
    return Scenario(**fields)
