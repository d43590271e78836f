"""What others send to an agent ends their connection at most, and never the agent."""

from __future__ import annotations

import contextlib
import json
import resource
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from device_agent.contract.limits import LIMITS
from host.errors import DeviceError
from host.transport.wire import Connection
from tests.integration.agent.service import OPEN, Service, as_nobody, wait_for

HELLO = {"command": "hello", "schema": "edgetlm/1"}
# First requests of which one alone was enough to leave the agent without its listener, and others like them.
FIRST = [
    b'{"command": "hello", "schema": "edgetlm/1", "secret": "\\ud800"}',
    b'{"command": "hello", "schema": "\\ud800"}',
    b'{"command": "\\udfff", "schema": "edgetlm/1"}',
    b'{"command": "hello", "schema": "edgetlm/1", "secret": ["a"]}',
    b'{"command": "hello", "schema": "edgetlm/1", "secret": {"a": 1}}',
    b'{"command": "hello", "schema": "edgetlm/1", "secret": 5}',
    b'{"command": "hello", "schema": "edgetlm/1", "secret": "a", "client": {}}',
    b'{"command": "hello", "schema": "edgetlm/1", "secret": "a", "identity": 7}',
    b'{"command": "hello", "schema": "edgetlm/1", "secret": "a", "secret": "b"}',
    b'{"command": "hello", "schema": "edgetlm/1", "secret": "x", "blob_bytes": 1000000000000000}',
    b'{"command": "hello", "schema": "edgetlm/1", "secret": "x", "blob_bytes": -1}',
    b'{"command": "hello", "schema": "edgetlm/1", "secret": "x", "blob_bytes": true}',
    b'{"command": "hello", "schema": "edgetlm/1", "secret": NaN}',
    b"\xef\xbb\xbf" + json.dumps({**HELLO, "secret": "a"}).encode(),
    json.dumps({**HELLO, "secret": "a"}).encode("utf-16"),
    b"[" * 4000,
    b'{"a":' * 600 + b"1" + b"}" * 600,
    b'{"a": ' + b"9" * 4000 + b"}",
    b"\xff\xfe{}",
    b"null",
    b"",
]


def frame(header: object) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack(">I", len(text)) + text


def talk(port: int, data: bytes) -> bytes:
    """Everything that is answered, until the other end closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(data)
        answer = b""
        while True:
            try:
                part = connection.recv(65536)
            except ConnectionResetError:  # it closed before it had read all of what was sent
                return answer
            if not part:
                return answer
            answer += part


def error_of(answer: bytes) -> dict[str, str]:
    """The error in the only frame of an answer."""
    (length,) = struct.unpack(">I", answer[:4])
    reply = json.loads(answer[4:])
    assert length == len(answer) - 4 and reply["ok"] is False
    return reply["error"]


@pytest.mark.parametrize("first", FIRST)
def test_no_first_request_ends_the_listener(service, first):
    port = service.ticket()["port"]
    error = error_of(talk(port, frame(first)))
    assert error["kind"] in ("bad_request", "denied") and error["message"].isprintable()
    connection = service.connect()
    session = connection.request(OPEN)[0]
    error = error_of(talk(int(session["port"]), frame(first)))
    assert error["kind"] in ("bad_request", "denied") and error["message"].isprintable()
    service.session(session).close()
    assert connection.request({"command": "session.status", "session": session["session"]})[0]["alive"]


def test_another_user_cannot_end_the_listener(service):
    port = service.ticket()["port"]
    program = (
        "with socket.create_connection(('127.0.0.1', int(sys.argv[1])), timeout=20) as connection:\n"
        "    connection.sendall(bytes.fromhex(sys.argv[2]))\n"
        "    print(connection.recv(4096).decode('latin-1'))\n"
    )
    for first in FIRST[:2]:
        assert '"ok": false' in as_nobody("import socket", program, str(port), frame(first).hex())
        service.connect().close()


def test_a_refused_first_request_forges_no_line_of_the_log(service):
    port = service.ticket()["port"]
    forged = "X\n2026-01-01 00:00:00 client 1: root@admin \x1b[31m\u202e"
    talk(port, frame({"command": "hello", "schema": forged, "secret": ""}))
    service.connect(client=forged).close()
    service.command("stop")
    log = (service.home / "device/agent.log").read_text()
    assert "\x1b" not in log and "\u202e" not in log and r"\x1b[31m" in log
    assert not any(line.startswith("2026-01-01") for line in log.splitlines())


@pytest.mark.parametrize(
    ("request_", "kind", "message"),
    [
        ({"command": "file.put", "sha256": "a" * 64, "blob_bytes": 10**15}, "bad_request", "were announced"),
        ({"command": "describe", "blob_bytes": 1}, "bad_request", "were announced"),
        ({"command": "describe", "blob_bytes": 10**18}, "bad_request", "were announced"),
        ({"command": ["describe"]}, "bad_request", "command is a list"),
        ({"command": None}, "bad_request", "command is None"),
        (b'{"command": "describe", "x": Infinity}', "bad_request", "Infinity"),
        (
            b'{"command": "describe", "x": ' + b"[" * 100000 + b"]" * 100000 + b"}",
            "bad_request",
            "not valid JSON",
        ),
        (b'{"command": "describe", "x": "\\ud800"}', "bad_request", "not valid JSON"),
        (b"[]", "bad_request", "not an object"),
    ],
)
def test_what_is_no_request_is_answered_and_ends_the_connection(service, request_, kind, message):
    ticket = service.ticket()
    greeting = frame({**HELLO, "secret": ticket["token"]})
    answer = talk(ticket["port"], greeting + frame(request_))
    (length,) = struct.unpack(">I", answer[:4])
    error = error_of(answer[4 + length :])
    assert error["kind"] == kind and message in error["message"] and error["message"].isprintable()
    service.connect().close()


def test_a_header_is_refused_by_its_length(service):
    ticket = service.ticket()
    greeting = frame({**HELLO, "secret": ticket["token"]})
    length = LIMITS.wire.request_bytes + 1
    answer = talk(ticket["port"], greeting + struct.pack(">I", length))
    assert f"frame header of {length} bytes".encode() in answer


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"threads": 0}, "threads"),
        ({"threads": 1_000_000}, "threads"),
        ({"threads": 1.5}, "threads"),
        ({"threads": True}, "threads"),
        ({"threads": "1"}, "threads"),
        ({"threads": None}, "threads"),
        ({"time_limit_s": 0}, "time limit"),
        ({"time_limit_s": -1}, "time_limit_s"),
        ({"time_limit_s": 1e300}, "time_limit_s"),
        ({"time_limit_s": "1"}, "time_limit_s"),
        ({"memory_limit_bytes": -1}, "memory_limit_bytes"),
        ({"memory_limit_bytes": 1 << 62}, "memory_limit_bytes"),
        ({"memory_limit_bytes": 0.5}, "memory_limit_bytes"),
        ({"python": 5}, "python"),
        ({"python": "a\0b"}, "python"),
        ({"python": "x" * 100_000}, "python"),
        ({"engine": {}}, "engine"),
        ({"engine": ""}, "engine"),
        ({"wait_s": []}, "wait_s"),
        ({"wait_s": 1e300}, "wait_s"),
        ({"command": "device.hold", "wait_s": "long"}, "wait_s"),
        ({"command": "session.attach", "session": 5}, "session"),
        ({"command": "session.status", "session": "s1", "wait_s": -1}, "wait_s"),
        ({"command": "file.has", "sha256": 5}, "sha256"),
        ({"command": "file.has", "sha256": "a" * 64 + "\n"}, "SHA-256"),
        ({"command": "bundle.install", "name": "x", "files": []}, "files"),
        ({"command": "bundle.install", "name": "x", "files": {"a": 5}}, "a is 5"),
        ({"command": "bundle.activate", "name": "x", "version": []}, "version"),
        ({"command": "modes.set", "mode": 1}, "mode"),
        ({"command": "device.replace", "identity": {}}, "identity"),
        ({"command": "file.put\n"}, "unknown command"),
    ],
)
def test_every_field_is_looked_at(service, fields, named):
    connection = service.connect()
    with pytest.raises(DeviceError, match=named) as caught:
        connection.request({**OPEN, **fields})
    assert str(caught.value).isprintable()
    assert connection.request({"command": "describe"})[0]["cores"] >= 1


def test_uploads_are_placed_under_file_names_only(service):
    connection = service.connect()
    session = connection.request(OPEN)[0]
    place = {"command": "session.place", "session": session["session"], "folder": "f", "files": {}}
    assert Path(connection.request(place)[0]["path"]).name == "f"
    for folder in ("", ".", "..", "a/b", "/", "a\n", "\x1b", "x" * 300, 5, None):
        with pytest.raises(DeviceError):
            connection.request({**place, "folder": folder})
    for name in ("", ".", "..", "../x", "/x", "a\n", "é" * 200):
        with pytest.raises(DeviceError, match="no file name"):
            connection.request({**place, "files": {name: "a" * 64}})
    with pytest.raises(DeviceError, match="at most"):
        files = {str(number): "a" * 64 for number in range(LIMITS.wire.files + 1)}
        connection.request({**place, "files": files})
    assert connection.request({"command": "session.status", "session": session["session"]})[0]["alive"]


def test_a_status_that_is_none_ends_its_executor_and_not_the_agent(service):
    connection = service.connect()
    first = connection.request(OPEN)[0]
    other = connection.request(OPEN)[0]
    # As code of a model could that runs in the executor's process.
    for descriptor in list(Path(f"/proc/{first['pid']}/fd").iterdir()):
        with contextlib.suppress(OSError):  # it was closed meanwhile, or is the reader's end
            if str(descriptor.readlink()).startswith("pipe:"):
                with descriptor.open("wb", buffering=0) as status:
                    status.write(b"\nB x\n")
    asked = {"command": "session.status", "session": first["session"]}
    assert wait_for(lambda: not connection.request(asked)[0]["alive"])
    reason = connection.request(asked)[0]["reason"]
    assert reason.startswith("was killed: its executor sent a status that is none"), reason
    assert connection.request({**asked, "session": other["session"]})[0]["alive"]
    assert (
        connection.request({"command": "session.attach", "session": first["session"]})[0]["generation"] == 2
    )


def test_clients_that_do_nothing_leave_room_for_the_agent(service):
    """With few files to open, most of the clients are told that the agent is busy, and its sessions go on."""
    few = 256

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, few))

    service.command("start", preexec_fn=limit)
    holder = service.connect()
    session = holder.request(OPEN)[0]
    idle, refusals = [], []
    for _ in range(80):
        try:
            ticket = service.ticket() if len(refusals) < 3 else None
            if ticket is None:
                break
            idle.append(Connection(ticket["port"], ticket["token"], "board"))
        except DeviceError as error:
            refusals.append(str(error))
    assert 2 <= len(idle) <= LIMITS.wire.clients and len(refusals) == 3
    assert all("serves" in refusal and "as many as it can" in refusal for refusal in refusals)
    assert len(list(Path(f"/proc/{service.pid}/fd").iterdir())) < few - 50
    # The holder opens, uses and closes sessions as before.
    service.session(session).close()
    holder.request(OPEN)
    assert holder.request({"command": "session.status", "session": session["session"]})[0]["alive"]
    for connection in idle:
        connection.close()
    assert wait_for(lambda: not _refused(service))


def _refused(service: Service) -> bool:
    try:
        service.connect().close()
    except DeviceError:
        return True
    return False


def test_an_agent_whose_listener_fails_ends_with_a_message(tmp_path):
    program = (
        "import sys\n"
        "from device_agent.wire import listener\n"
        "from device_agent.__main__ import main\n"
        "def fail(self, *_): raise SystemError('no more')\n"
        "listener.Listener._accept = fail\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    command = [sys.executable, "-c", program, "serve", "--home", str(tmp_path / "deaf")]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as agent,
        contextlib.ExitStack() as stack,
    ):
        stack.callback(agent.kill)
        port = json.loads(agent.stdout.readline())["port"]
        socket.create_connection(("127.0.0.1", port)).close()
        assert agent.wait(60) == 1
        said = agent.stderr.read().decode()
    assert "the listener failed: SystemError('no more'); the agent ends" in said


def test_an_error_of_ours_in_one_request_ends_nothing(tmp_path):
    program = (
        "import sys\n"
        "from device_agent.board.machine import Machine\n"
        "from device_agent.__main__ import main\n"
        "def fail(self): raise AssertionError('a mistake\\x1b')\n"
        "Machine.state = fail\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    token = tmp_path / "token"
    token.write_text("secret")
    words = ["serve", "--token-file", str(token), "--store", str(tmp_path / "store")]
    command = [sys.executable, "-c", program, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as agent, contextlib.ExitStack() as stack:
        stack.callback(agent.kill)
        port = json.loads(agent.stdout.readline())["port"]
        connection = Connection(port, "secret", "board")
        for _ in range(2):
            with pytest.raises(
                DeviceError, match=r"state failed on the device: AssertionError\('a mistake\\x1b'"
            ):
                connection.request({"command": "state"})
        assert connection.request({"command": "describe"})[0]["cores"] >= 1
        connection.close()
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(60) == 0
