"""What the agent costs a board that does nothing: `python -m benchmarks.agent [--seconds 30]`.

An agent is started as on a board, by a ticket. Its processor time over the window is read from the kernel,
with nobody connected and again with a host connected and an idle session; resident memory after the session
has run a model is the daemon's and the Python executor's. The overhead of a measurement is what the host
waits for it, less the runs themselves: the median of many. One JSON object on stdout.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.result_file import add_json_option, heading, write_result
from host.transport.wire import Connection, pack
from tests.integration.agent.conftest import write_bundle

SCHEMA = "edgetlm.agent/1"
ROOT = Path(__file__).parents[1]
LIMITS = {"idle_share": 0.01, "daemon_bytes": 30e6, "executor_bytes": 60e6, "overhead_s": 5e-3}
_NS_PER_S = 1e9
_MEASUREMENTS = 100


def cpu_s(pid: int) -> float:
    """Seconds that a process's threads have run, in nanosecond steps (schedstat of Linux)."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / _NS_PER_S


def share(pids: list[int], seconds: float) -> float:
    """Share of one core that processes take over a window."""
    before, start = sum(cpu_s(pid) for pid in pids), time.monotonic()
    time.sleep(seconds)
    return (sum(cpu_s(pid) for pid in pids) - before) / (time.monotonic() - start)


def resident_bytes(pid: int) -> int:
    """Memory of a process that is in RAM, what it shares with others included."""
    return int(psutil.Process(pid).memory_info().rss)


def command(home: Path, *words: str) -> str:
    """Output of one command of the agent."""
    line = [sys.executable, "-m", "device_agent", *words, "--home", str(home)]
    return subprocess.run(line, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def run_a_model(session: dict[str, Any], folder: Path) -> float:
    """Load, run and measure a small model in a session; returns the overhead of a measurement in seconds."""
    bundle = write_bundle(folder / "bundle")
    worker = Connection(session["port"], session["key"], "executor")
    worker.request({"command": "load", "path": str(bundle), "trust": "unsigned"})
    with np.load(bundle / "golden.npz") as golden:
        descriptions, blobs = pack([golden["x"], golden["unused"]])
    worker.request({"command": "run", "tensors": descriptions}, blobs)
    # One run to warm up and one sample of one run.
    plan = {"warmup_s": 0.0, "warmup_runs": 1, "min_repeats": 1, "max_repeats": 1, "min_time_s": 0.0}
    plan.update(min_sample_s=0.0, energy=False)
    overheads: list[float] = []
    for _ in range(_MEASUREMENTS):
        start = time.monotonic()
        reply, _ = worker.request({"command": "measure", "plan": plan})
        waited = time.monotonic() - start
        overheads.append(waited - 2 * sum(reply["times_s"]))
    worker.close()
    return statistics.median(overheads)


def measure(seconds: float) -> dict[str, Any]:
    """All figures of the agent, with what it was measured on."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        ticket = json.loads(command(home, "ticket"))
        try:
            idle = share([ticket["pid"]], seconds)
            daemon_alone = resident_bytes(ticket["pid"])
            connection = Connection(ticket["port"], ticket["token"], "board")
            request = {"command": "session.open", "engine": "tvm", "threads": 1, "time_limit_s": 60}
            session, _ = connection.request(request)
            overhead_s = run_a_model(session, Path(folder))
            with_session = share([ticket["pid"], session["pid"]], seconds)
            daemon, executor = resident_bytes(ticket["pid"]), resident_bytes(session["pid"])
            connection.close()
        finally:
            command(home, "stop")
    figures = {
        "idle_share": idle,
        "idle_share_with_session": with_session,
        "daemon_bytes": max(daemon, daemon_alone),
        "executor_bytes": executor,
        "overhead_s": overhead_s,
    }
    return {
        **figures,
        "limits": LIMITS,
        "met": all(figures[name] <= limit for name, limit in LIMITS.items()),
        "seconds": seconds,
    }


def main() -> int:
    """Measures and prints; 1 where a figure is not met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="length of each window")
    add_json_option(parser)
    options = parser.parse_args()
    about = heading("benchmarks.agent", SCHEMA)
    figures = measure(options.seconds)
    print(json.dumps(figures, indent=2))
    write_result(options.json, about | figures)
    return 0 if figures["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
