"""What sampling a sensor costs: `python -m benchmarks.sampling` prints JSON.

For each kind of sensor the meter process runs as on a device, on a tree laid out as documented, and samples
at the sensor's own period, throttle flags and temperatures every second beside it. Its processor time, that
of programs which it starts included, is divided by the time it sampled. What the kernel spends on the bus to
a real chip is not in it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.result_file import add_json_option, heading, write_result
from device_agent.measure.meter_client import MeterProcess
from tests.unit.device_agent.power import trees

SCHEMA = "edgetlm.sampling/1"
# Share of one core that sampling may take.
LIMIT = 0.02
_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
_METER = """
import time
print('%s', flush=True)
while True:
    print("W 4.25", flush=True)
    time.sleep(0.02)
"""


def _rapl(root: Path) -> None:
    trees.zone(root, "intel-rapl:0", "package-0", 1_000_000)
    trees.zone(root, "intel-rapl:1", "package-1", 1_000_000)


def _external(root: Path) -> None:
    header = {"edgetlm_meter": 1, "boundary": "wall", "period_s": 0.02}
    program = _METER % json.dumps(header)
    facts = {"meter": {"command": [sys.executable, "-c", program]}}
    trees.write(root, "board.json", json.dumps(facts))


KINDS: dict[str, Callable[[Path], object]] = {
    "ina3221 (hwmon, total)": trees.orin_nano,
    "ina3221 (hwmon, three rails on two chips)": trees.agx_orin,
    "ina3221 (iio)": trees.nano,
    "ina238": trees.thor,
    "rpi5_pmic": trees.pi5,
    "rapl": _rapl,
    "hwmon (energy)": trees.energy_chip,
    "external (program)": _external,
}


def _zones(root: Path) -> None:
    """Eight zones, as a Jetson has them."""
    for index in range(8):
        trees.write(root, f"sys/class/thermal/thermal_zone{index}/type", f"zone-{index}")
        trees.write(root, f"sys/class/thermal/thermal_zone{index}/temp", 45_000)


def _spent_s(pid: int) -> float:
    """Processor time of a process with its threads and the programs that it waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    # utime, stime, cutime, cstime are fields 14 to 17 of the whole line.
    return sum(int(ticks) for ticks in fields[11:15]) * _TICK_S


def cost(make: Callable[[Path], object], seconds: float) -> dict[str, Any]:
    """Processor time of sampling one kind of sensor, as a share of one core."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make(root)
        _zones(root)
        command = [sys.executable, "-m", "device_agent.measure.meter", "--system-root", folder]
        meter = MeterProcess([*command, "--board", str(root / "board.json")])
        try:
            probe = meter.probe()
            if probe["unavailable"] is not None:
                raise RuntimeError(probe["unavailable"])
            meter.begin({"energy_s": seconds, "retries": 0})
            pid = meter.pid
            before, start_s = _spent_s(pid), time.monotonic()
            time.sleep(seconds)
            spent, end_s = _spent_s(pid) - before, time.monotonic()
            resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            meter.end(start_s, end_s, 1)
        finally:
            meter.close()
    period_s = probe["description"]["period_s"]
    return {
        "readings_per_s": round(1.0 / period_s, 1),
        "share_of_a_core": round(spent / (end_s - start_s), 5),
        "resident_mb": round(resident / 1e6, 1),
        "within_limit": spent / (end_s - start_s) <= LIMIT,
    }


def main() -> int:
    """Prints the cost of every kind; 1 where one is above the limit."""
    parser = argparse.ArgumentParser(prog="benchmarks.sampling", description="What sampling costs.")
    parser.add_argument("--seconds", type=float, default=20.0, help="of sampling each kind")
    parser.add_argument("--kind", action="append", help="only kinds that begin so")
    add_json_option(parser)
    options = parser.parse_args()
    about = heading("benchmarks.sampling", SCHEMA)
    wanted = tuple(options.kind or [""])
    found = {name: cost(make, options.seconds) for name, make in KINDS.items() if name.startswith(wanted)}
    figures = {"limit": LIMIT, "seconds": options.seconds, "kinds": found}
    print(json.dumps(figures, indent=1))
    write_result(options.json, about | figures)
    return 0 if all(one["within_limit"] for one in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
