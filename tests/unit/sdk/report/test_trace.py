"""The trace of a deployment: Chrome's JSON, with stages, kernels and power."""

from __future__ import annotations

import itertools
import json
import time
from dataclasses import replace

import pytest

from host.deploy import DeployResult
from host.model import EMULATOR
from host.progress import Silence, StageClock, StageSpan
from sdk.report.trace import trace_json
from tests.unit.compare.samples import result
from tests.unit.sdk.report.power_result import deployment


def events(made: DeployResult, kind: str, process: int) -> list[dict[str, object]]:
    found = json.loads(json.dumps(trace_json(made)))["traceEvents"]
    return [one for one in found if one["ph"] == kind and one["pid"] == process]


def test_the_clock_keeps_when_each_stage_was_under_way() -> None:
    clock = StageClock(Silence())
    for name in ("import", "verify", "import"):
        with clock.stage(name):
            time.sleep(0.002)
    spans = clock.spans()
    assert [one.name for one in spans] == ["import", "verify", "import"]
    for before, after in itertools.pairwise(spans):
        assert after.begin_s >= before.begin_s + before.seconds
    seconds = clock.seconds()
    assert list(seconds) == ["import", "verify", "total"]
    assert seconds["import"] == pytest.approx(spans[0].seconds + spans[2].seconds)


def test_stages_are_slices_in_microseconds() -> None:
    made = replace(result(), stages=(StageSpan("import", 0.5, 1.25), StageSpan("build", 2.0, 0.001)))
    first, second = events(made, "X", 1)
    assert (first["name"], first["ts"], first["dur"]) == ("import", 5e5, 1.25e6)
    assert (second["name"], second["ts"], second["dur"]) == ("build", 2e6, 1e3)


def test_kernels_follow_one_another_with_all_of_their_calls() -> None:
    whole = result()
    tasks = tuple(
        replace(task, weight=index + 1, latency_us=10.0 * (index + 1))
        for index, task in enumerate((whole.tasks[0], whole.tasks[0]))
    )
    unmeasured = replace(whole.tasks[0], latency_us=None)
    made = replace(whole, tasks=(*tasks, unmeasured))
    slices = events(made, "X", 2)
    assert [(one["ts"], one["dur"]) for one in slices] == [(0.0, 10.0), (10.0, 40.0)]
    assert slices[1]["args"]["calls"] == 2
    assert not events(replace(made, timing=EMULATOR), "X", 2)


def test_power_is_a_counter_by_engine() -> None:
    made = deployment()
    one = made.contenders["onnxruntime"]
    measured = one.measurement
    trace = ((0.0, 5.0, 40.0), (0.1, 6.5, None))
    energy = replace(measured.energy, trace=trace)
    peer = replace(one, measurement=replace(measured, energy=energy))
    made = replace(made, contenders={**made.contenders, "onnxruntime": peer})
    watts = [one for one in events(made, "C", 3) if one["name"] == "onnxruntime: power (W)"]
    assert [(one["ts"], one["args"]["value"]) for one in watts] == [(0.0, 5.0), (1e5, 6.5)]
    heat = [one for one in events(made, "C", 3) if one["name"] == "onnxruntime: hottest zone (C)"]
    assert [one["args"]["value"] for one in heat] == [40.0]


def test_paths_of_the_host_are_not_in_it() -> None:
    made = replace(result(), command="sdk deploy /home/somebody/models/net.onnx")
    assert "/home/somebody" not in json.dumps(trace_json(made))
