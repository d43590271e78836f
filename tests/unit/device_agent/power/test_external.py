"""External meters: a program, a port on loopback and a serial device that speak the line protocol."""

from __future__ import annotations

import os
import pty
import socket
import subprocess
import sys
import threading
import time

import pytest

from device_agent import power
from device_agent.board.machine import Machine
from device_agent.measure.meter import PowerMeter
from device_agent.power.sensors import external
from device_agent.power.sensors.external import External

HEADER = '{"edgetlm_meter": 1, "name": "bench", "boundary": "dc-input", "period_s": 0.02, "accuracy": "1 %"}'
ADAPTER = f"""
import time
print('{HEADER}', flush=True)
print("# a remark")
while True:
    print("W 4.25", flush=True)
    time.sleep(0.02)
"""


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(external, "_FIRST_S", 5.0)


def meter(**configuration):
    return External("/", {"meter": configuration})


def test_an_adapter_program_is_a_meter():
    sensor = power.choose(
        "/", {"sensors": ["ina3221"], "meter": {"command": [sys.executable, "-c", ADAPTER]}}
    )
    try:
        assert sensor.probe() is None and sensor.read() == pytest.approx(4.25)
        description = sensor.describe()
        assert description["source"] == "external: bench" and description["kind"] == "measured"
        assert (description["boundary"], description["accuracy"]) == ("dc-input", "1 %")
        assert sensor.period_s == 0.02
    finally:
        sensor.close()


def test_its_readings_become_energy(tmp_path):
    sensor = meter(command=[sys.executable, "-c", ADAPTER])
    measure = PowerMeter(Machine(str(tmp_path)), sensor)
    try:
        assert measure.probe()["unavailable"] is None
        # What came while nobody measured is of no window.
        time.sleep(0.2)
        measure.begin({"energy_s": 0.5, "energy_updates": 5})
        start = time.monotonic()
        time.sleep(0.6)
        end = time.monotonic()
        answer = measure.end(start, end, 10)
        record = answer["energy"]
        assert record["mean_w"] == pytest.approx(4.25) and record["boundary"] == "dc-input"
        assert record["accuracy"] == "1 %" and 5 <= record["n_samples"] <= (end - start) / 0.02 + 2
    finally:
        measure.close()


def test_a_program_ends_with_its_meter():
    sensor = meter(command=["/bin/sh", "-c", f"echo '{HEADER}'; while :; do echo W 1; sleep 0.02; done"])
    assert sensor.probe() is None
    process = sensor._stream._process
    sensor.close()
    assert process.returncode is not None


def test_a_port_on_loopback_is_a_meter():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def speak():
            connection, _ = server.accept()
            with connection:
                # A line may come in pieces.
                for part in (HEADER + "\nW 2.", "5\nW 3.5\n"):
                    connection.sendall(part.encode())
                    time.sleep(0.05)
                connection.recv(1)

        thread = threading.Thread(target=speak)
        thread.start()
        sensor = meter(tcp=f"127.0.0.1:{server.getsockname()[1]}")
        assert sensor.probe() is None
        until = time.monotonic() + 60
        readings = []
        while len(readings) < 2 and time.monotonic() < until:
            readings += sensor.take()
        assert [watts for _, watts in readings] == [2.5, 3.5]
        assert readings[0][0] <= readings[1][0] <= time.monotonic()
        sensor.close()
        thread.join(60)
        assert not thread.is_alive()


def test_a_serial_device_that_knows_no_protocol_is_described_by_the_configuration():
    master, slave = pty.openpty()
    os.write(master, b"W 1.5\r\nW 1.75\r\n")
    sensor = meter(
        serial=os.ttyname(slave), baud=9600, boundary="wall", period_s=0.5, name="plug", delay_s=0.2
    )
    stop = threading.Event()

    def speak():
        while not stop.wait(0.02):
            os.write(master, b"W 1.75\r\n")

    thread = threading.Thread(target=speak)
    thread.start()
    try:
        assert sensor.probe() is None
        assert sensor.describe()["boundary"] == "wall" and sensor.period_s == 0.5
        assert sensor.describe()["source"] == "external: plug"
        assert sensor.read() == pytest.approx(1.75)
        time.sleep(0.1)
        # A reading is as old as the configuration says.
        assert sensor.take()[-1][0] < time.monotonic() - 0.15
    finally:
        stop.set()
        thread.join()
        sensor.close()
        os.close(master)
        os.close(slave)


@pytest.mark.parametrize(
    ("configuration", "reason"),
    [
        ({"tcp": "192.168.1.5:5025"}, "is not on this machine; forward the port over SSH"),
        ({"command": ["/no/such/program"]}, "cannot be opened"),
        ({"serial": "/no/such/device"}, "cannot be opened"),
        ({"serial": "/dev/null", "baud": 12345}, "12345 is no baud rate"),
        ({"serial": "/dev/null"}, "is no serial device"),
        ({"telepathy": True}, "needs one of command, tcp and serial"),
        ({"command": ["/bin/sh", "-c", "exit 3"]}, "it ended with code 3"),
        ({"command": ["/bin/sh", "-c", "echo W nan; sleep 9"]}, "nan is not from"),
        ({"command": ["/bin/sh", "-c", "echo W -inf; sleep 9"]}, "-inf is not from"),
        ({"command": ["/bin/sh", "-c", "echo W 1e30; sleep 9"]}, "1e+30 is not from"),
        ({"command": ["/bin/sh", "-c", "echo '{\"a\": NaN}'; sleep 9"]}, "its first line is not valid JSON"),
        (
            {"command": [sys.executable, "-c", "print('{\"a\":' + '[' * 2000, flush=True)"]},
            "is not valid JSON",
        ),
        ({"command": ["/bin/sh", "-c", "echo W 1; sleep 9"], "delay_s": [1]}, "is not from"),
        (
            {"command": ["/bin/sh", "-c", "echo W 1; sleep 9"], "boundary": "wall", "period_s": "x"},
            "wrong period_s",
        ),
        (
            {"command": ["/bin/sh", "-c", "echo W 1; sleep 9"], "boundary": "wall", "period_s": 0},
            "wrong period_s",
        ),
        ({"command": ["/bin/sh", "-c", "echo '{\"edgetlm_meter\": 9}'; sleep 9"]}, "not of protocol 1"),
        ({"command": ["/bin/sh", "-c", "echo W much; sleep 9"]}, "could not convert"),
        ({"command": ["/bin/sh", "-c", "echo W 3; exec sleep 9"]}, "does not say its boundary and period_s"),
    ],
)
def test_what_is_wrong_with_a_meter_is_said(configuration, reason):
    sensor = meter(**configuration)
    assert reason in sensor.probe()
    # Whoever attached a meter wants it: no other sensor stands in.
    assert power.choose("/", {"meter": configuration}).describe()["source"] == "none"
    sensor.close()


@pytest.mark.parametrize("code", [0, 3])
def test_the_exit_code_is_waited_for(code):
    """The output is closed before the program ends: the other order on a busy machine, here always."""
    read_end, write_end = os.pipe()
    # Ends only once somebody waits for it: the wait itself lets it go.
    program = f"import os, sys; os.close(1); os.read({read_end}, 1); os._exit({code})"
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        pass_fds=[read_end],
    )
    wait = process.wait

    def letting_it_go(timeout=None):
        os.write(write_end, b"x")
        return wait(timeout)

    process.wait = letting_it_go
    try:
        with process.stdout as stdout:
            stream = external._Stream(os.dup(stdout.fileno()), process)
        assert stream.receive() == b"" and process.poll() is None
        assert stream.ending() == f"it ended with code {code}"
        stream.release()
        stream.close()
    finally:
        os.close(read_end)
        os.close(write_end)


def test_a_program_that_closes_its_output_and_goes_on_is_told(monkeypatch):
    monkeypatch.setattr(external, "_ENDING_S", 0.1)
    sensor = meter(command=["/bin/sh", "-c", "exec >&-; exec sleep 9"])
    assert "it closed its output and goes on" in sensor.probe()


def test_what_a_meter_calls_itself_is_fit_to_be_shown():
    header = HEADER.replace("bench", "\\u001b]0;x\\u0007<script>")
    sensor = meter(command=["/bin/sh", "-c", f"echo '{header}'; while :; do echo W 1; sleep 0.02; done"])
    assert sensor.probe() is None
    try:
        assert sensor.describe()["source"] == r"external: \x1b]0;x\x07<script>"
    finally:
        sensor.close()


def test_a_silent_meter_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(external, "_FIRST_S", 0.1)
    assert "sent no reading" in meter(command=["/bin/sh", "-c", "exec sleep 9"]).probe()


def test_a_meter_that_goes_away_fails_its_readings():
    sensor = meter(command=["/bin/sh", "-c", f"echo '{HEADER}'; echo W 1; exit 0"])
    assert sensor.probe() is None
    until = time.monotonic() + 60
    with pytest.raises(OSError, match="is gone: it ended"):
        while time.monotonic() < until:
            sensor.take()
            time.sleep(0.01)
    sensor.close()


def test_nobody_listens_without_a_configuration():
    assert External("/", None).probe() == "no external meter is configured"
