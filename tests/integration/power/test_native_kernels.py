"""The energy of a kernel, as the native executor asks the meter for it."""

from __future__ import annotations

import json
import sys

import pytest

from device_agent.contract.measuring import KERNEL_ENERGY
from device_agent.measure.repeats import calls_together
from tests.integration.agent.conftest import bundle
from tests.integration.native.conftest import executable
from tests.integration.native.process import KEY, Executor

__all__ = ["bundle", "executable"]

# The test may wait for the build.
pytestmark = pytest.mark.timeout(900)

KERNEL_METER = """
import json, sys, time

for line in sys.stdin:
    fields = json.loads(line)
    answer = {"unavailable": None, "time_s": 0.0, "window_s": 0.05, "mean_w": 1.0}
    if fields["do"] == "begin" and "plan" in fields:
        plan = fields["plan"]
    if fields["do"] == "end":
        record = {"gross_j": 2.0, "runs": fields["runs"], "plan": plan, "trace": [[0.0, 1.0, None]]}
        answer = {"energy": record, "keep": True, "again": False, "throttled": False, "state_before": {}}
        answer["state_after"] = {}
    print(json.dumps(answer), flush=True)
"""


def test_a_kernels_energy_is_of_a_loop_of_calls(executable, tmp_path, bundle):
    from tvm import rpc

    (tmp_path / "meter.py").write_text(KERNEL_METER)
    meter = [sys.executable, str(tmp_path / "meter.py")]
    with Executor([str(executable)], tmp_path / "session", meter=meter) as running:
        remote = rpc.connect("127.0.0.1", running.port, key=KEY)
        remote.upload(bytearray((bundle / "lib.so").read_bytes()), "lib.so")
        module = remote.load_module("lib.so")
        specification = {"repeat": 2, "arguments": [[[4, 32], "float32"]] * 2}
        measure = remote.get_function("edgetlm.measure")
        silent = json.loads(measure(module, "relu", json.dumps(specification)))
        reply = json.loads(measure(module, "relu", json.dumps({**specification, "energy": True})))
    assert "energy" not in silent
    energy, once_s = reply["energy"], sorted(reply["times_s"])[1]
    assert energy["gross_j"] == 2.0 and energy["trace"] == [] and len(reply["times_s"]) == 2
    # Whole batches of calls, in the plan that the Python executor has too.
    assert energy["runs"] % calls_together(once_s) == 0 and energy["runs"] >= calls_together(once_s)
    assert energy["plan"] == KERNEL_ENERGY._asdict()
