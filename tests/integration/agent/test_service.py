"""The agent as a service: tickets, what others can reach of it, two hosts at once, its life."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from device_agent.home import private_folder
from device_agent.wire import AgentError
from host.errors import DeviceError, EdgeError
from host.transport.device import Device, OnThisMachine
from host.transport.wire import Connection, DisconnectedError
from host.tuning.unit import DeviceUnit
from tests.integration.agent.service import (
    NOBODY,
    OPEN,
    ROOT,
    Service,
    as_nobody,
    files_below,
    rpc_answer,
    wait_for,
)


@pytest.fixture
def service(tmp_path):
    with Service(tmp_path / "home") as service:
        yield service


def test_a_ticket_starts_the_agent_and_lets_one_connection_in(service):
    first, second = service.ticket(), service.ticket()
    assert first["pid"] == second["pid"] == service.pid and first["token"] != second["token"]
    with_first = Connection(first["port"], first["token"], "board")
    assert with_first.request({"command": "describe"})[0]["cores"] >= 1
    with pytest.raises(DeviceError, match="was used or has expired"):
        Connection(first["port"], first["token"], "board")
    Connection(second["port"], second["token"], "board").close()
    with_first.close()


def test_wrong_tickets_let_nobody_in(service):
    ticket = service.ticket()
    name, secret = ticket["token"].split(".")
    for wrong in ("", "guess", name + "." + "0" * 64, "../" + name + "." + secret, "0" * 16 + "." + secret):
        with pytest.raises(DeviceError, match="wrong secret"):
            Connection(ticket["port"], wrong, "board")
    # A wrong guess does not use the ticket up.
    Connection(ticket["port"], ticket["token"], "board").close()


def test_everything_on_the_disk_is_this_users_alone(service):
    connection = service.connect()
    connection.request(OPEN)
    service.ticket()
    paths = list(files_below(service.home / "device"))
    assert len(paths) > 10
    shared = [path for path in paths if not path.is_symlink() and stat.S_IMODE(path.lstat().st_mode) & 0o077]
    assert shared == []
    connection.close()


def test_secrets_are_in_no_command_line_and_no_environment(service):
    ticket = service.ticket()
    connection = Connection(ticket["port"], ticket["token"], "board")
    key = connection.request(OPEN)[0]["key"]
    spare = service.ticket()["token"]
    for pid in service.processes():
        seen = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
        for secret in (ticket["token"], spare, key):
            assert secret.split(".")[-1].encode() not in seen
    for path in files_below(service.home):
        if path.is_file():
            assert spare.split(".")[-1].encode() not in path.read_bytes(), path
    connection.close()


STRANGER_IMPORTS = """
import json, socket, struct
from device_agent import service
from device_agent.home import Home
"""
STRANGER = """
home, pid, executor, port, rpc = sys.argv[1], *map(int, sys.argv[2:6])
files, answers = {}, {}
def attempt(name, action):
    try:
        action()
        files[name] = "done"
    except OSError as error:
        files[name] = type(error).__name__
attempt("list", lambda: os.listdir(home))
attempt("record", lambda: open(home + "/device/agent.json"))
attempt("environment", lambda: open("/proc/%d/environ" % pid).read())
attempt("environment of the executor", lambda: open("/proc/%d/environ" % executor).read())
attempt("folder of the executor", lambda: os.listdir("/proc/%d/cwd/" % executor))
attempt("memory of the executor", lambda: open("/proc/%d/mem" % executor))
attempt("signal", lambda: os.kill(pid, 0))
attempt("ticket", lambda: service.ticket(Home(home), sys.executable))
def talk(port, data):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(data)
        reply = b""
        while True:
            try:
                part = connection.recv(4096)
            except ConnectionError:
                return reply
            if not part:
                return reply
            reply += part
def frame(fields):
    text = json.dumps(fields).encode()
    return struct.pack(">I", len(text)) + text
for name, hello in (
    ("no hello", {"command": "describe"}),
    ("no secret", {"command": "hello", "schema": "edgetlm/1"}),
    ("a guess", {"command": "hello", "schema": "edgetlm/1", "secret": "0" * 16 + "." + "0" * 64}),
):
    for place in (port, rpc):
        reply = talk(place, frame(hello) + frame({"command": "describe"}))
        answers["%s at %d" % (name, place)] = reply.decode("latin-1")
magic = struct.pack("<ii", 0xff271, 12) + b"client:guess"
print(json.dumps([files, answers, talk(rpc, magic + b"x" * 64).hex()]))
"""


def test_another_user_gets_nothing(service):
    connection = service.connect()
    session = connection.request(OPEN)[0]
    daemon = json.loads((service.home / "device/agent.json").read_text())
    words = [str(service.home), *map(str, (daemon["pid"], session["pid"], daemon["port"], session["port"]))]
    files, answers, rpc = json.loads(as_nobody(STRANGER_IMPORTS, STRANGER, *words))
    assert rpc == struct.pack("<i", 0xFF271 + 2).hex()
    assert len(answers) == 6
    for name, answer in answers.items():
        assert '"ok": false' in answer and "cores" not in answer, name
        assert answer.count('"ok"') == 1, name  # and then the connection was closed
    if os.geteuid() == 0:
        assert len(files) == 8 and set(files.values()) == {"PermissionError"}, files
    connection.close()


def test_a_second_client_of_a_session_gets_nothing(service):
    connection = service.connect()
    session = connection.request(OPEN)[0]
    with socket.create_connection(("127.0.0.1", session["port"])) as first:
        text = f"client:{session['key']}".encode()
        first.sendall(struct.pack("<ii", 0xFF271, len(text)) + text)
        assert struct.unpack("<i", first.recv(4))[0] == 0xFF271
        assert rpc_answer(session["port"], session["key"]) == 0xFF271 + 1
    connection.close()


def test_silent_and_slow_clients_block_nobody(service):
    port = service.ticket()["port"]
    threads = len(list(Path(f"/proc/{service.pid}/task").iterdir()))
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
    for one in silent[::2]:
        one.sendall(b"\0")
    slow = socket.create_connection(("127.0.0.1", port))
    for byte in struct.pack(">I", 4000):
        slow.sendall(bytes([byte]))
    for _ in range(3):
        service.connect().close()
    wait_for(lambda: len(list(Path(f"/proc/{service.pid}/task").iterdir())) == threads)
    assert len(list(Path(f"/proc/{service.pid}/task").iterdir())) == threads
    # Those that came first had to make room.
    silent[1].settimeout(10)
    assert silent[1].recv(1) == b""
    for one in [*silent, slow]:
        one.close()


def test_a_first_request_that_is_too_long_is_not_read(service):
    ticket = service.ticket()
    with socket.create_connection(("127.0.0.1", ticket["port"]), timeout=20) as connection:
        connection.sendall(struct.pack(">I", 5000))
        assert b"5000 bytes is not of protocol" in connection.recv(4096)
        assert connection.recv(1) == b""


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

    def last_words(self):
        return ""

    def stop(self):
        return None


def test_a_host_that_comes_back_has_its_board_again(service, monkeypatch):
    """What a tuning does after a cut: connect, and go on."""
    devices = [Device("board", service.connect(), False, Reached()) for _ in range(2)]
    monkeypatch.setattr(devices[0], "close", lambda: None)  # nothing gets through any more
    unit = DeviceUnit("board", None, lambda: devices[1], devices[0])
    devices[0].hold()
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
        connection = service.connect()
        time.sleep(2.0)
        assert agent.poll() is None and connection.request({"command": "state"})[0]["ok"]
        connection.close()
        ticket = service.ticket()
        time.sleep(2.0)
        service.dial(ticket["port"], ticket["token"]).close()
        assert agent.wait(30) == 0


def test_an_idle_agent_does_not_wake_up(service):
    """So that it costs nothing, whatever the board: what waits, waits for something to happen."""
    connection = service.connect()

    def switches():
        tasks = Path(f"/proc/{service.pid}/task").glob("*/status")
        return sum(
            int(task.read_text().partition("\nvoluntary_ctxt_switches:")[2].split()[0]) for task in tasks
        )

    connection.request({"command": "state"})
    time.sleep(0.5)
    before = switches()
    time.sleep(2.0)
    assert switches() == before
    connection.close()


def test_a_second_agent_of_one_home_is_refused(service):
    service.ticket()
    done = service.command("serve")
    assert done.returncode == 1 and "an agent serves" in done.stderr and done.stderr.count("\n") == 1


def test_an_agent_that_does_not_start_says_why(service):
    service.home.mkdir()
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
    assert "serves on port" in log and "ada@attic?forged" in log and log.rstrip().endswith("ended")
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
