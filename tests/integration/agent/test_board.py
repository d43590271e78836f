"""An agent on a board with power modes and a sensor: they are restored, and the meter ends, whoever dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from host.errors import DeviceError
from tests.integration.agent.service import OPEN, ROOT, Service, wait_for
from tests.unit.device_agent.power.mode_trees import contents, make_cpufreq, make_nvpmodel


@pytest.mark.parametrize("end", ["executor", "agent"])
def test_the_meter_ends_with_its_executor(board, bundle, golden, end):
    zone = board.system_root / "sys/class/powercap/intel-rapl:0"
    zone.mkdir(parents=True)
    for name, content in (("name", "package-0"), ("max_energy_range_uj", "1000000"), ("energy_uj", "5")):
        (zone / name).write_text(content + "\n")
    agent = start_on(board)
    connection = board.connect()
    session = connection.request(OPEN)[0]
    worker = board.session(session)
    worker.request({"command": "load", "path": str(bundle)})
    worker.set(golden)
    plan = {"min_time_s": 60.0, "max_time_s": 60.0, "idle_s": 0.0, "warmup_s": 0.0}
    worker._send({"command": "measure", "plan": plan})

    def meters():
        return [pid for pid, words in board.processes().items() if "measure.meter" in words]

    assert wait_for(meters)
    os.kill(session["pid"] if end == "executor" else agent.pid, signal.SIGKILL)
    assert wait_for(lambda: not meters() and session["pid"] not in board.processes())
    if end == "executor":
        assert connection.request({"command": "state"})[0]["ok"]
        agent.terminate()
    agent.wait()


@pytest.fixture
def board(tmp_path):
    """A machine with power modes, and an agent that takes it for its own."""
    root = tmp_path / "root"
    make_cpufreq(root)
    make_nvpmodel(root)
    (root / "proc/meminfo").write_text("MemTotal: 8000000 kB\n")
    with Service(tmp_path / "home") as service:
        service.system_root = root
        yield service


def start_on(board) -> subprocess.Popen:
    """An agent of the board; the service's tickets are for it."""
    command = [sys.executable, "-m", "device_agent", "serve", "--home", str(board.home)]
    agent = subprocess.Popen(
        [*command, "--system-root", str(board.system_root)], cwd=ROOT, stdout=subprocess.PIPE
    )
    with agent.stdout:
        assert agent.stdout.readline()
    return agent


def test_power_modes_are_restored_however_their_client_ends(board):
    before = contents(board.system_root)
    agent = start_on(board)
    for end in ("restore", "session", "cut", "stop"):
        connection = board.connect(client="ada@attic")
        session = connection.request({**OPEN, "engine": "onnxruntime"})[0]["session"]
        named = {"session": session} if end == "session" else {}
        connection.request({"command": "modes.set", "mode": "7W", **named})
        reply = connection.request({"command": "modes.set", "mode": "performance", **named})[0]
        assert {one["name"] for one in reply["modes"] if one["current"]} >= {"7W", "performance"}
        assert contents(board.system_root) != before
        if end == "restore":
            connection.request({"command": "modes.restore"})
        elif end == "session":
            connection.request({"command": "session.close", "session": session})
        elif end == "cut":
            other = board.connect()
            connection.close()
            other.request({"command": "device.hold", "wait_s": 30})
            other.close()
        else:
            agent.terminate()
            assert agent.wait(60) == 0
        assert contents(board.system_root) == before, end
        connection.close()


def test_power_modes_are_restored_by_the_next_start_after_a_kill(board):
    before = contents(board.system_root)
    agent = start_on(board)
    connection = board.connect()
    connection.request({"command": "modes.set", "mode": "7W"})
    connection.request({"command": "modes.set", "mode": "cpu-50%"})
    agent.kill()
    agent.wait()
    assert contents(board.system_root) != before
    agent = start_on(board)
    assert contents(board.system_root) == before
    assert len(list((board.home / "device/run").iterdir())) == 1
    agent.terminate()
    agent.wait()


def test_a_device_in_other_modes_is_in_use(board):
    agent = start_on(board)
    one, other = board.connect(client="ada@attic"), board.connect(client="bob@bench")
    one.request({"command": "modes.set", "mode": "powersave"})
    with pytest.raises(DeviceError, match="in use by ada@attic"):
        other.request(OPEN)
    with pytest.raises(DeviceError, match="set by ada@attic"):
        other.request({"command": "modes.set", "mode": "performance"})
    with pytest.raises(DeviceError, match="set by ada@attic"):
        other.request({"command": "modes.restore"})
    assert other.request({"command": "modes.list"})[0]["changed"]
    one.request({"command": "modes.restore"})
    other.request({"command": "modes.set", "mode": "performance"})
    agent.terminate()
    agent.wait()


def test_a_journal_that_cannot_be_written_changes_nothing(board):
    before = contents(board.system_root)
    agent = start_on(board)
    connection = board.connect()
    run = board.home / "device/run" / str(agent.pid)
    real = run.with_name("moved")
    run.rename(real)
    run.write_text("no folder any more")
    with pytest.raises(DeviceError):
        connection.request({"command": "modes.set", "mode": "performance"})
    assert contents(board.system_root) == before
    run.unlink()
    real.rename(run)
    connection.request({"command": "modes.set", "mode": "performance"})
    agent.terminate()
    agent.wait()
    assert contents(board.system_root) == before
