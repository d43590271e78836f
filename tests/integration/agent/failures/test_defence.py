"""What others can reach of an agent: nothing, without a ticket of its own user."""

from __future__ import annotations

import json
import os
import socket
import stat
import struct
from pathlib import Path

import pytest

from host.errors import DeviceError
from host.transport.wire import Connection
from tests.integration.agent.service import (
    OPEN,
    as_nobody,
    files_below,
    rpc_answer,
    wait_for,
)


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
from device_agent.serve import control
from device_agent.store.agent_folder import AgentFolder
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
attempt("ticket", lambda: control.ticket(AgentFolder(home), sys.executable))
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
