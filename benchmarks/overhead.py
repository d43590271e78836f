"""What a measurement costs beside the time that is measured: host to agent and back.

    python -m benchmarks.overhead [--repeats 200] [-o overhead.json]

Two devices, both this machine: one through the local transport, one through SSH over the loopback interface,
with an sshd of its own and the payload that a board would get. They are asked in turn. Prints, for each, the
median and the 90th percentile in milliseconds of: a request of the agent, a run of a model of two kernels
measured once, and one kernel measured once over TVM's RPC (its library sent, loaded and removed each time, as
tuning does). The time that the board's own clock gives for the kernel is taken off.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from benchmarks.result_file import add_json_option, heading, write_result
from host.devices import DeviceEntry
from host.measure.kernels import KernelRunner
from host.model import Measurement
from host.transport import Device, Session
from host.transport.installing import install_agent
from host.transport.local import connect_local
from host.transport.ssh import connect_ssh
from tests.integration.agent.conftest import write_bundle
from tests.integration.ssh.conftest import stop_agent
from tests.integration.ssh.sshd import Sshd, make_client

SCHEMA = "edgetlm.overhead/1"

_ONCE = {
    "warmup_s": 0.0,
    "warmup_runs": 0,
    "min_repeats": 1,
    "max_repeats": 1,
    "min_time_s": 0.0,
    "min_sample_s": 0.0,
    "energy": False,
}
_RELU = [((4, 32), "float32")] * 2
_UNCOUNTED = 10


def main() -> None:
    """Measure both transports in turn and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=200, help="measurements of each kind")
    add_json_option(parser, "-o", "--output")
    options = parser.parse_args()
    about = heading("benchmarks.overhead", SCHEMA)
    with tempfile.TemporaryDirectory(prefix="edgetlm-overhead-") as scratch, ExitStack() as stack:
        folder = Path(scratch)
        bundle = write_bundle(folder / "bundle")
        devices = {
            "local": stack.enter_context(connect_local(folder / "store")),
            "ssh": stack.enter_context(_over_ssh(folder)),
        }
        figures = _figures(devices, bundle, options.repeats, stack)
    print(json.dumps(figures, indent=1))
    write_result(options.json, about | figures)


@contextmanager
def _over_ssh(folder: Path) -> Iterator[Device]:
    home = make_client(folder / "client")
    sshd = Sshd(folder / "board", home)
    sshd.start()
    sshd.accept_host_key()
    before = dict(os.environ)
    os.environ["HOME"] = str(home)
    os.environ.pop("SSH_AUTH_SOCK", None)
    try:
        entry = install_agent(DeviceEntry("bench", "ssh", "127.0.0.1", "", sshd.port)).entry
        with connect_ssh(entry) as device:
            yield device
    finally:
        os.environ.clear()
        os.environ.update(before)
        stop_agent(sshd)
        sshd.stop()


def _figures(devices: dict[str, Device], bundle: Path, repeats: int, stack: ExitStack) -> dict[str, object]:
    ways: dict[tuple[str, str], Callable[[], float]] = {}
    for name, device in devices.items():
        session = stack.enter_context(device.open_session("tvm"))
        signature = session.load(bundle, trust="unsigned")
        session.set_inputs([np.zeros(one["shape"], one["dtype"]) for one in signature["inputs"][:2]])
        kernels = stack.enter_context(device.open_session("tvm"))
        runner = stack.enter_context(KernelRunner(kernels))
        ways[name, "request"] = _request(device)
        ways[name, "model"] = _model(session)
        ways[name, "kernel"] = _kernel(runner, bundle / "lib.so")
    spent: dict[tuple[str, str], list[float]] = {way: [] for way in ways}
    for repeat in range(_UNCOUNTED + repeats):
        for way, cost in ways.items():
            seconds = cost()
            if repeat >= _UNCOUNTED:
                spent[way].append(seconds)
    figures: dict[str, object] = {"unit": "ms", "repeats": repeats, "cores": os.cpu_count()}
    for name in devices:
        figures[name] = {
            kind: {
                "median": round(float(np.median(values)) * 1e3, 3),
                "p90": round(float(np.quantile(values, 0.9)) * 1e3, 3),
            }
            for (device_name, kind), values in spent.items()
            if device_name == name
        }
    version = subprocess.run(["ssh", "-V"], check=False, capture_output=True, text=True).stderr.strip()
    figures["versions"] = {"python": sys.version.split()[0], "ssh": version}
    return figures


def _request(device: Device) -> Callable[[], float]:
    def cost() -> float:
        begin = time.perf_counter()
        device.request("file.has", sha256="0" * 64)
        return time.perf_counter() - begin

    return cost


def _model(session: Session) -> Callable[[], float]:
    return lambda: _beside(lambda: session.measure(None, **_ONCE))


def _kernel(runner: KernelRunner, library: Path) -> Callable[[], float]:
    return lambda: _beside(
        lambda: runner.measure(library, "relu", _RELU, repeat=1, number=1, min_repeat_ms=0.0)
    )


def _beside(measure: Callable[[], Measurement]) -> float:
    """Seconds of a measurement without those that it reports."""
    begin = time.perf_counter()
    measurement = measure()
    return time.perf_counter() - begin - sum(measurement.times_s)


if __name__ == "__main__":
    main()
