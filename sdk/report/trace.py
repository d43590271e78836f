"""A trace of a deployment in the JSON form of Chrome's tracing, which Perfetto and chrome://tracing show.

Source: "Trace Event Format", Google, revision of 2016: complete events ("X") with microseconds, counters
("C"), names of processes ("M").

The host's stages are on the clock of the host. Kernels and power are the device's, on clocks of their own,
and are processes of their own in the trace: a moment of one is not that of another.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sdk.text import data_without_host_paths

if TYPE_CHECKING:
    from host.deploy import DeployResult
    from host.model import Measurement

Event = dict[str, Any]
_HOST, _MODEL, _POWER = 1, 2, 3
_KERNELS = "kernels of one run, one after the other, each with all of its calls"


def trace_json(result: DeployResult) -> dict[str, Any]:
    """The trace: stages of the deployment, kernels of a run, and watts by engine where there is a sensor.

    A kernel's time is that of its calls while the model runs. Kernels are in the order of the result, not in
    that of a run, of which only sums by kernel are measured. They are left out where
    the device's times say nothing about a board.
    """
    events = [*_stages(result), *(_kernels(result) if result.timing.decides else []), *_power(result)]
    content = {
        "displayTimeUnit": "ms",
        "otherData": {"model": result.name, "device": result.device, "command": result.command},
        "traceEvents": events,
    }
    cleaned: dict[str, Any] = data_without_host_paths(content)
    return cleaned


def _stages(result: DeployResult) -> Iterator[Event]:
    """The stages of the host; one that began within another lies below it."""
    yield _name("process_name", _HOST, 0, "host: stages")
    for span in sorted(result.stages, key=lambda one: (one.begin_s, -one.seconds)):
        yield _slice(_HOST, span.name, span.begin_s * 1e6, span.seconds * 1e6, {})


def _kernels(result: DeployResult) -> Iterator[Event]:
    measured = [task for task in result.tasks if task.latency_us is not None]
    if not measured:
        return
    yield _name("process_name", _MODEL, 0, f"{result.device}: {_KERNELS}")
    begin_us = 0.0
    for task in measured:
        assert task.latency_us is not None
        duration_us = task.weight * task.latency_us
        details = {
            "calls": task.weight,
            "us_a_call": round(task.latency_us, 3),
            "made_by": task.source,
            "rule": task.rule,
            "gflop_per_s": round(task.flops / task.latency_us / 1e3, 3) if task.latency_us else None,
        }
        yield _slice(_MODEL, task.name, begin_us, duration_us, details)
        begin_us += duration_us


def _power(result: DeployResult) -> Iterator[Event]:
    """Watts, and degrees of the hottest zone, over the windows in which energy was measured."""
    named = False
    for engine, one in result.contenders.items():
        for time_s, watts, celsius in _samples(one.measurement):
            if not named:
                yield _name("process_name", _POWER, 0, f"{result.device}: power sensor")
                named = True
            yield _counter(f"{engine}: power (W)", time_s, watts)
            if celsius is not None:
                yield _counter(f"{engine}: hottest zone (C)", time_s, celsius)


def _samples(measurement: Measurement | None) -> tuple[tuple[float, float, float | None], ...]:
    return () if measurement is None else measurement.energy.trace


def _slice(process: int, name: str, begin_us: float, duration_us: float, details: Event) -> Event:
    times = {"ts": round(begin_us, 3), "dur": round(duration_us, 3)}
    return {"name": name, "ph": "X", "pid": process, "tid": 0, **times, "args": details}


def _counter(name: str, time_s: float, value: float) -> Event:
    return {"name": name, "ph": "C", "pid": _POWER, "ts": round(time_s * 1e6, 3), "args": {"value": value}}


def _name(kind: str, process: int, thread: int, text: str) -> Event:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": text}}
