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
        answer = {"energy": record, "keep": True, "again": False, "state_before": {}}
        answer["throttled"] = plan["energy"] and "throttled" in sys.argv
        answer["state_after"] = {}
    print(json.dumps(answer), flush=True)
"""


def _replies(executable, folder, bundle, *states):
    """What the executor says of a kernel without energy and with it, and its meter in these states."""
    from tvm import rpc

    (folder / "meter.py").write_text(KERNEL_METER)
    meter = [sys.executable, str(folder / "meter.py"), *states]
    with Executor([str(executable)], folder / "session", meter=meter) as running:
        remote = rpc.connect("127.0.0.1", running.port, key=KEY)
        remote.upload(bytearray((bundle / "lib.so").read_bytes()), "lib.so")
        module = remote.load_module("lib.so")
        specification = {"repeat": 2, "arguments": [[[4, 32], "float32"]] * 2}
        measure = remote.get_function("edgetlm.measure")
        silent = json.loads(measure(module, "relu", json.dumps(specification)))
        return silent, json.loads(measure(module, "relu", json.dumps({**specification, "energy": True})))


def test_a_kernels_energy_is_of_a_loop_of_calls(executable, tmp_path, bundle):
    silent, reply = _replies(executable, tmp_path, bundle)
    assert "energy" not in silent
    energy, once_s = reply["energy"], sorted(reply["times_s"])[1]
    assert energy["gross_j"] == 2.0 and energy["trace"] == [] and len(reply["times_s"]) == 2
    # Whole batches of calls, in the plan that the Python executor has too.
    assert energy["runs"] % calls_together(once_s) == 0 and energy["runs"] >= calls_together(once_s)
    assert energy["plan"] == KERNEL_ENERGY._asdict()


def test_joules_of_a_throttled_board_are_none(executable, tmp_path, bundle):
    _, reply = _replies(executable, tmp_path, bundle, "throttled")
    assert not reply["throttled"] and len(reply["times_s"]) == 2
    assert reply["energy"]["kind"] == "unavailable" and reply["energy"]["gross_j"] is None
    assert reply["energy"]["source"] == "the board throttled"
