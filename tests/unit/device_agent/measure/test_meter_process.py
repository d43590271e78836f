"""The process that measures energy for an executor."""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import sys
import threading
import time

import pytest

from device_agent.board.machine import Machine
from device_agent.measure.meter import PowerMeter
from device_agent.measure.meter_client import MeterLost, MeterProcess, meter_for
from tests.unit.device_agent.measure.windows import PLAN, window
from tests.unit.device_agent.power import trees


def command(root, *more):
    return [sys.executable, "-m", "device_agent.measure.meter", "--system-root", str(root), *more]


@pytest.fixture
def turning(tmp_path):
    """A RAPL counter that grows by 10 W."""
    file = trees.zone(tmp_path, "intel-rapl:0", "package-0", 0) / "energy_uj"
    stop, began = threading.Event(), time.monotonic()
    descriptor = os.open(file, os.O_WRONLY)

    def turn():
        while not stop.wait(0.002):
            os.pwrite(descriptor, b"%020d\n" % int((time.monotonic() - began) * 10e6), 0)

    os.pwrite(descriptor, b"%020d\n" % 0, 0)
    thread = threading.Thread(target=turn)
    thread.start()
    yield tmp_path
    stop.set()
    thread.join()
    os.close(descriptor)


def test_a_process_of_its_own_measures_the_same(turning):
    power = MeterProcess(command(turning))
    try:
        assert power.probe()["description"]["source"] == "rapl"
        _, answer = window(power, dict(PLAN, energy_s=1.0), seconds=1.0)
        # The thread that turns the counter may have to wait for a core at either end of the window.
        assert answer["energy"]["mean_w"] == pytest.approx(10.0, rel=0.2)
        with pytest.raises(MeterLost, match=r"refuses end: ValueError: no window"):
            power.end(0.0, 1.0, 1)
    finally:
        power.close()
    power.close()


def test_a_load_that_swings_is_measured_within_two_percent(tmp_path):
    """The rail of an Orin Nano, its current turned by the test, which keeps what it wrote and when."""
    folder = trees.orin_nano(tmp_path)
    volts = 4.912
    stop, written = threading.Event(), []
    descriptor = os.open(folder / "curr1_input", os.O_WRONLY)

    def turn():
        while not stop.wait(0.002):
            now = time.monotonic()
            # Between 0.6 and 1.8 A, twice a second.
            milliamperes = int(1200 + 600 * math.sin(2 * math.pi * 2.0 * now))
            os.pwrite(descriptor, b"%020d\n" % milliamperes, 0)
            written.append((now, milliamperes))

    os.pwrite(descriptor, b"%020d\n" % 1200, 0)
    thread = threading.Thread(target=turn)
    thread.start()
    power = MeterProcess(command(tmp_path))
    try:
        power.begin(dict(PLAN, energy_s=2.0))
        start = time.monotonic()
        time.sleep(2.1)
        end = time.monotonic()
        record = power.end(start, end, 7)["energy"]
    finally:
        stop.set()
        thread.join()
        power.close()
        os.close(descriptor)
    steps = [(max(a, start), min(b, end), current) for (a, current), (b, _) in itertools.pairwise(written)]
    truth = sum((b - a) * volts * current * 1e-3 for a, b, current in steps if b > a)
    assert record["rails"] == ["VDD_IN"] and record["n_dropped"] == 0
    assert record["gross_j"] * 7 == pytest.approx(truth, rel=0.02)
    assert record["peak_w"] == pytest.approx(volts * 1.8, rel=0.05)


def test_the_process_reads_the_boards_facts(tmp_path):
    trees.power_chip(tmp_path, "ina226", 0, label="input", power1_input=5_000_000)
    trees.power_chip(tmp_path, "ina226", 1, label="usb", power1_input=1_000_000)
    board = tmp_path / "home/board.json"
    board.parent.mkdir()
    board.write_text(json.dumps({"name": "mine", "sensors": ["hwmon"], "rails": ["input"]}))
    for facts, unavailable in ((["--board", str(board)], False), ([], True)):
        power = MeterProcess(command(tmp_path, *facts))
        try:
            assert (power.probe()["unavailable"] is not None) == unavailable
        finally:
            power.close()
    board.write_text("{")
    power = MeterProcess(command(tmp_path, "--board", str(board)))
    try:
        assert "board.json cannot be read" in power.probe()["unavailable"]
    finally:
        power.close()


def test_the_process_ends_with_its_executor_even_while_it_waits(tmp_path):
    trees.zone(tmp_path, "intel-rapl:0", "package-0", 0)
    process = subprocess.Popen(command(tmp_path), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        process.stdin.write(b'{"do": "idle", "seconds": 3600}\n')
        process.stdin.flush()
        process.stdin.close()
        assert process.wait(timeout=30) == 0


def test_a_process_that_does_not_start_or_dies_is_told(tmp_path):
    with pytest.raises(MeterLost, match="cannot be asked"):
        MeterProcess([str(tmp_path / "nothing")]).probe()
    power = MeterProcess(["/bin/sh", "-c", "exit 7"])
    with pytest.raises(MeterLost, match=r"ended with code 7|cannot be asked"):
        power.probe()
    power.close()


def test_an_executor_without_a_command_line_measures_in_process(tmp_path):
    machine = Machine(str(tmp_path))
    assert isinstance(meter_for(None, machine, str(tmp_path)), PowerMeter)
    assert isinstance(meter_for(["x"], machine, str(tmp_path)), MeterProcess)
