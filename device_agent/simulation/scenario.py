"""The description of a simulated board, as the host sends it (docs/replay.md)."""

from __future__ import annotations

import fnmatch
import json
from typing import Any, Dict, List, NamedTuple, Optional


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
    noise_w: float
    thermal: Thermal

    def model_s(self, engine: str) -> Optional[float]:
        """Recorded latency of a whole model, None where there is none."""
        return next((one.seconds for one in self.models if one.name == engine), None)

    def kernel_s(self, name: str) -> Optional[float]:
        """Recorded latency of a kernel, None where there is none."""
        return next((one.seconds for one in self.kernels if fnmatch.fnmatchcase(name, one.name)), None)


def load(path: str) -> Scenario:
    """Reads a scenario as the host wrote it."""
    with open(path, encoding="utf-8") as file:
        fields: Dict[str, Any] = json.load(file)
    fields["thermal"] = Thermal(**fields["thermal"])
    for name in ("models", "kernels"):
        fields[name] = [Latency(**one) for one in fields[name]]
    return Scenario(**fields)
