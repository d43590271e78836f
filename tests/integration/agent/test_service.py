"""The agent as a service: two hosts at once, and its life."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from device_agent.errors import AgentError
from device_agent.serve.tickets import TicketStore
from device_agent.store.private_files import private_folder
from host.errors import DeviceError, EdgeError
from host.transport.agent import OnThisMachine
from host.transport.device import Device
from host.transport.wire import Connection, DisconnectedError
from host.tuning.runners.connection import BoardAccess, DeviceConnection
from tests.integration.agent.service import (
    NOBODY,
    OPEN,
    ROOT,
    Service,
    wait_for,
)


def test_the_second_host_is_told_who_has_the_device(service):
    first, second = service.connect(client="ada@attic"), service.connect(client="bob@bench")
    first.request(OPEN)
    with pytest.raises(DeviceError, match=r"in use by ada@attic for \d+ s"):
        second.request(OPEN)
    holder = second.request({"command": "device.holder"})[0]
    assert holder["holder"]["client"] == "ada@attic" and holder["waiting"] == 0
    assert "in use by ada@attic" in service.command("status").stdout
    with pytest.raises(DeviceError, match=r"ada@attic .* after 0.2 s of waiting"):
        second.request({**OPEN, "wait_s": 0.2})
    first.close()
    second.request({**OPEN, "wait_s": 30})
    second.close()


def test_hosts_wait_in_line(service):
    connections = [service.connect(client=name) for name in ("first", "second", "third", "gone")]
    connections[0].request({"command": "device.hold"})
    order = []
    threads = []

    def wait(index):
        connections[index].request({"command": "device.hold", "wait_s": 60})
        order.append(index)
        connections[index].request({"command": "device.release"})

    watcher = service.connect()
    connections[3]._send({"command": "device.hold", "wait_s": 60})
    for index in (1, 2):
        waiting = index
        assert wait_for(lambda n=waiting: watcher.request({"command": "device.holder"})[0]["waiting"] == n)
        threads.append(threading.Thread(target=wait, args=(index,)))
        threads[-1].start()
    assert wait_for(lambda: watcher.request({"command": "device.holder"})[0]["waiting"] == 3)
    connections[3].close()  # waited first, and left
    assert wait_for(lambda: watcher.request({"command": "device.holder"})[0]["waiting"] == 2)
    connections[0].request({"command": "device.release"})
    for thread in threads:
        thread.join(60)
    assert order == [1, 2]
    assert watcher.request({"command": "device.holder"})[0]["text"] == "nobody uses it"
    for connection in [*connections, watcher]:
        connection.close()


def test_a_client_that_was_cut_off_replaces_itself(service):
    """Its old connection still looks alive: the tunnel has not noticed."""
    cut = service.connect(client="ada@attic", identity="7f")
    old = cut.request(OPEN)[0]
    back = service.connect(client="ada@attic", identity="80")
    for nobody in ("", "81"):
        back.request({"command": "device.replace", "identity": nobody})
        with pytest.raises(DeviceError, match="in use by ada@attic"):
            back.request(OPEN)
    back.request({"command": "device.replace", "identity": "7f"})
    assert back.request(OPEN)[0]["session"] != old["session"]
    assert old["pid"] not in service.processes()
    with pytest.raises(DisconnectedError):
        cut.request({"command": "describe"})
    back.close()


class Reached(OnThisMachine):
    """An agent that was started elsewhere."""

    def end_reason(self):
        return ""

    def stop(self):
        return None


def test_a_host_that_comes_back_has_its_board_again(service, monkeypatch):
    """What a tuning does after a cut: connect, and go on."""
    devices = [Device("board", service.connect(), False, Reached()) for _ in range(2)]
    monkeypatch.setattr(devices[0], "close", lambda: None)  # nothing gets through any more
    unit = DeviceConnection(BoardAccess("board", None, lambda: devices[1], devices[0]))
    devices[0].reserve()
    devices[0].open_session("tvm").close()
    with pytest.raises(DeviceError, match="the device is in use by"):
        devices[1].open_session("tvm")
    unit.drop()
    unit.connect()
    assert unit.device is devices[1]
    with devices[1].open_session("tvm") as session:
        assert session.pid in service.processes()
    # It has the board between its sessions too, as before.
    with pytest.raises(DeviceError, match="the device is in use by"):
        service.connect().request(OPEN)
    devices[1].close()
    service.connect().request({**OPEN, "wait_s": 30})


def copy_of_the_agent(folder: Path) -> Path:
    shutil.copytree(
        ROOT / "device_agent", folder / "device_agent", ignore=shutil.ignore_patterns("__pycache__")
    )
    return folder


def test_a_new_version_replaces_an_agent_that_nobody_uses(service, tmp_path):
    old = service.ticket()["pid"]
    newer = Service(service.home, copy_of_the_agent(tmp_path / "newer"))
    connection = service.connect()
    connection.request(OPEN)
    done = newer.command("ticket")
    assert done.returncode == 1 and "of another version is in use by " in done.stderr
    connection.close()
    assert wait_for(lambda: newer.command("ticket").returncode == 0)
    assert newer.pid != old and wait_for(lambda: old not in service.processes())
    record = json.loads((service.home / "device/agent.json").read_text())
    assert record["code"] == str(tmp_path / "newer/device_agent")


def test_the_agent_outlives_the_command_that_started_it_and_stops(service):
    assert service.command("status").stdout.startswith("not running")
    assert service.command("start").returncode == 0
    pid = service.pid
    assert os.getsid(pid) == pid and Path(f"/proc/{pid}/stat").read_text().split()[3] != str(os.getpid())
    assert f"process {pid}" in service.command("status").stdout
    assert service.command("stop").stdout == "stopped\n"
    assert wait_for(lambda: not service.processes()) and not (service.home / "device/agent.json").exists()
    assert list((service.home / "device/run").iterdir()) == []
    assert service.command("stop").stdout == "not running\n"


def test_tickets_asked_for_at_once_start_one_agent(service):
    command = [sys.executable, "-m", "device_agent", "ticket", "--home", str(service.home)]
    asked = [
        subprocess.Popen(command, cwd=ROOT, env=service.environment, stdout=subprocess.PIPE) for _ in range(3)
    ]
    tickets = [json.loads(one.communicate(timeout=60)[0]) for one in asked]
    assert len({ticket["pid"] for ticket in tickets}) == 1
    assert len([words for words in service.processes().values() if " serve " in words]) == 1


def test_an_agent_that_nobody_uses_ends(tmp_path):
    service = Service(tmp_path / "home")
    command = [sys.executable, "-m", "device_agent", "serve", "--home", str(service.home)]
    command += ["--idle-limit-s", "1.5"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as agent:
        agent.stdout.readline()
        record = json.loads((service.home / "device/agent.json").read_text())
        # Issued here: the command starts a process, which may take longer than the limit.
        tickets = TicketStore(str(Path(record["folder"], "tickets")))
        connection = service.dial(record["port"], tickets.issue())
        time.sleep(2.0)
        assert agent.poll() is None and connection.request({"command": "state"})[0]["ok"]
        ticket = tickets.issue()
        connection.close()
        time.sleep(2.0)
        service.dial(record["port"], ticket).close()
        assert agent.wait(30) == 0


def test_an_idle_agent_does_not_wake_up(service):
    """So that it costs nothing, whatever the board: what waits, waits for something to happen."""
    connection = service.connect()

    def switches():
        tasks = Path(f"/proc/{service.pid}/task").glob("*/status")
        return sum(
            int(task.read_text().partition("\nvoluntary_ctxt_switches:")[2].split()[0]) for task in tasks
        )

    def sleeps():
        before = switches()
        time.sleep(2.0)
        return switches() == before

    connection.request({"command": "state"})
    # Threads of the first seconds may still end, and what wakes up at intervals would end every pause.
    assert wait_for(sleeps)
    connection.close()


def test_a_second_agent_of_one_home_is_refused(service):
    service.ticket()
    done = service.command("serve")
    assert done.returncode == 1 and "an agent serves" in done.stderr and done.stderr.count("\n") == 1


def test_an_agent_that_does_not_start_says_why(service):
    shutil.rmtree(service.home / "device")
    (service.home / "device").write_text("in the way")
    done = service.command("ticket")
    assert done.returncode == 1 and done.stderr.startswith("device-agent: ") and done.stderr.count("\n") == 1


def test_a_folder_of_another_user_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    with pytest.raises(AgentError, match="belongs to another user; set EDGETLM_HOME"):
        private_folder(str(tmp_path))


def test_what_came_and_went_is_in_the_log(service):
    service.connect(client="ada@attic\nforged").close()
    with pytest.raises(EdgeError):
        Connection(service.ticket()["port"], "guess", "board")
    service.command("stop")
    log = (service.home / "device/agent.log").read_text()
    assert "serves on port" in log and "ada@attic forged" in log and log.rstrip().endswith("ended")
    assert "nobody was let in: wrong secret" in log


def test_an_interrupted_agent_is_replaced_by_the_next_ticket(service):
    connection = service.connect()
    connection.request(OPEN)
    old = service.pid
    os.kill(old, signal.SIGSTOP)
    os.kill(old, signal.SIGKILL)
    assert wait_for(lambda: not service.processes())
    assert service.ticket()["pid"] != old
    assert [entry.name for entry in (service.home / "device/run").iterdir()] == [str(service.pid)]
    connection.close()
