"""What a hostile board answers: bounded in size and time, one line of ours, and nothing of it is believed."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading

import pytest

from device_agent.contract.limits import LIMITS
from device_agent.contract.text import is_printable
from host.devices.board_shell import order
from host.devices.install import board_status
from host.errors import DeviceError
from host.ssh import SshConnection
from host.ssh import connection as connection_module

DIGEST = "ab" * 32
UNIT = {"available": True, "enabled": False, "linger": False, "system": False, "reason": "", "path": "/u"}
STATUS = {
    "home": "/home/me/.local/share/edgetlm",
    "python": "/usr/bin/python3",
    "agent": DIGEST,
    "agents": [DIGEST],
    "payloads": [],
    "serves": {"tvm": {"kind": "python", "path": f"payloads/{DIGEST}"}},
    "incoming": {f"{DIGEST}.0123abcd.part": 7},
    "free_bytes": 10**10,
    "unit": UNIT,
}
_PIECE = b"A" * (1 << 18)

# A client of its own, so that the server's memory does not count: the most that a process had, in MB.
_CLIENT = """
import resource, sys
from host.devices.board_shell import order
from host.errors import DeviceError
from host.ssh import SshConnection
def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
with SshConnection.to("bench", "127.0.0.1", "me", int(sys.argv[1]), sys.argv[2], sys.argv[3]) as link:
    before = peak_mb()
    try:
        order(link, "status", timeout_s=120)
    except DeviceError as error:
        print(str(error))
    print(peak_mb() - before)
"""


def _link(board):
    return SshConnection.to(
        "bench", "127.0.0.1", "me", board.port, str(board.identity), str(board.known_hosts)
    )


def _flood(send):
    """A gigabyte, as far as anybody takes it."""

    def answer(channel):
        for _ in range(1 << 12):
            getattr(channel, send)(_PIECE)

    return answer


@pytest.mark.parametrize(("send", "what"), [("sendall", "output"), ("sendall_stderr", "messages")])
def test_a_gigabyte_is_hung_up_on_with_tens_of_megabytes(hostile_board, send, what):
    hostile_board.answer = _flood(send)
    arguments = [str(hostile_board.port), str(hostile_board.identity), str(hostile_board.known_hosts)]
    done = subprocess.run(
        [sys.executable, "-c", _CLIENT, *arguments], capture_output=True, text=True, check=True
    )
    message, grown_mb = done.stdout.splitlines()
    assert message.startswith("bench: ") and f"KiB of {what}" in message
    assert int(grown_mb) < 100


def test_a_board_that_was_hung_up_on_is_still_there_for_the_next_command(hostile_board):
    hostile_board.answer = _flood("sendall")
    with _link(hostile_board) as link:
        with pytest.raises(DeviceError, match="answers with more than"):
            link.run("flood")
        hostile_board.say(b"yes\n")
        assert link.run("echo yes").stdout == b"yes\n"


def test_a_drip_ends_with_the_time_and_not_with_the_last_byte(hostile_board):
    stop = threading.Event()

    def drip(channel):
        while not stop.wait(0.05):
            channel.sendall(b"{")

    hostile_board.answer = drip
    with _link(hostile_board) as link, pytest.raises(DeviceError, match="did not end within 1 s"):
        order(link, "status", timeout_s=1.0)
    stop.set()


def test_messages_without_end_do_not_hide_the_output(hostile_board):
    """Both are read as they come: a board may fill one while it holds the other open."""
    done = threading.Event()

    def answer(channel):
        channel.sendall_stderr(b"m" * LIMITS.ssh.stderr_bytes)
        done.wait(60)
        channel.sendall(b"out")

    hostile_board.answer = answer
    with _link(hostile_board) as link:
        done.set()
        completed = link.run("both")
    assert completed.stdout == b"out" and len(completed.stderr) == LIMITS.ssh.stderr_bytes


def test_a_window_that_nobody_granted_ends_the_connection(hostile_board, monkeypatch):
    """A server that ignores the flow control fills memory before anybody reads."""
    monkeypatch.setattr(connection_module, "_WINDOW_BYTES", 1 << 18)
    sent = []

    def answer(channel):
        while channel.transport.is_active() and len(sent) * len(_PIECE) < 1 << 30:
            channel.out_window_size = 1 << 30
            channel.sendall(_PIECE)
            sent.append(1)

    hostile_board.answer = answer
    with _link(hostile_board) as link:
        channel = link._transport.open_session(timeout=10)
        channel.exec_command("flood")
        channel.shutdown_write()
        link._transport.join(60)  # nobody reads the channel
        assert not link._transport.is_active()
    assert len(sent) * len(_PIECE) < 4 * LIMITS.ssh.backlog_bytes


@pytest.mark.parametrize(
    "speech",
    [
        b"A" * (1 << 20),
        b"SSH-2.0-x\r\n" + (0xFFFFFF04).to_bytes(4, "big") + b"A" * (1 << 16),
    ],
    ids=["no end of line", "a packet of 4 GB"],
)
def test_a_server_that_speaks_too_much_before_it_is_known(tmp_path, monkeypatch, speech):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(connection_module, "CONNECT_S", 60.0)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            client, _ = listener.accept()
            with client:
                client.sendall(speech)
                client.settimeout(30)
                try:
                    while client.recv(1 << 16):
                        pass
                except ConnectionError:
                    pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with pytest.raises(DeviceError, match=r"was announced|came before the protocol"):
            SshConnection.to("bench", "127.0.0.1", "me", listener.getsockname()[1])
        thread.join(30)


@pytest.mark.parametrize(
    ("output", "messages", "words"),
    [
        (b"nope\n", b"\x1b]0;PWNED\x07\x1b[2J\x1b[31mtype: sudo rm\n", r"\x1b[31mtype: sudo rm"),
        (b"[1]\n", b"", "cannot carry out"),
        (b'"x"\n', b"", "cannot carry out"),
        (b'{"error": 5}\n', b"", "gives no reason"),
        (b'{"error": []}\n', b"", "gives no reason"),
        (b'{"error": {"kind": [], "message": {}}}\n', b"", "gives no reason"),
        (b'{"error": {"kind": "x", "message": "\\u001b]0;PWNED\\u0007"}}\n', b"", r"\x1b]0;PWNED\x07"),
        (b"[" * 200_000 + b"\n", b"", "cannot carry out"),
        (b'{"a": ' * 100_000 + b"\n", b"", "cannot carry out"),
        (b'{"home": NaN}\n', b"", "cannot carry out"),
        (b'{"home": "\\ud800"}\n', b"", "cannot carry out"),
        (b'{"free_bytes": ' + b"9" * 100_000 + b"}\n", b"", "cannot carry out"),
        (b"\xff\xfe\n", b"", "cannot carry out"),
        (b"{}\n", b"", "answers nothing as its home"),
    ],
)
def test_answers_that_are_none(hostile_board, output, messages, words):
    hostile_board.say(output, messages)
    with _link(hostile_board) as link, pytest.raises(DeviceError) as caught:
        board_status(link)
    message = str(caught.value)
    assert words in message and is_printable(message) and len(message) < 1000


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("home", "/x; touch PWN"),
        ("home", "/x$(id)"),
        ("home", "/x\n/y"),
        ("home", "/x/../../etc"),
        ("home", "relative"),
        ("home", "/" + "x" * 5000),
        ("home", ["/x"]),
        ("home", 1),
        ("home", None),
        ("python", "python3 -c 'x'"),
        ("python", "/usr/bin/python3\x1b[31m"),
        ("agent", 1),
        ("agents", "x"),
        ("agents", ["x"] * 100_000),
        ("payloads", {"a": 1}),
        ("serves", [1]),
        ("incoming", {"a.part": "x"}),
        ("incoming", {"a.part": -1}),
        ("incoming", {"a.part": True}),
        ("free_bytes", "x"),
        ("free_bytes", 1.5),
        ("free_bytes", -1),
        ("unit", {}),
        ("unit", {**UNIT, "system": "no"}),
        ("unit", {**UNIT, "reason": 5}),
    ],
)
def test_fields_of_another_kind_are_refused_by_name(hostile_board, field, value):
    hostile_board.say(json.dumps({**STATUS, field: value}).encode() + b"\n")
    with _link(hostile_board) as link, pytest.raises(DeviceError, match=f"as its {field}") as caught:
        board_status(link)
    assert is_printable(str(caught.value)) and len(str(caught.value)) < 500


def test_a_good_answer_is_taken_and_what_is_not_ours_in_it_is_left_out(hostile_board):
    strange = {
        **STATUS,
        "agents": [DIGEST, "../../etc", f"{DIGEST}.part", 5],
        "incoming": {"../x": 5, f"{DIGEST}.0123abcd.part": 7},
        "serves": {**STATUS["serves"], "evil": {"kind": "python", "path": "../../x"}, "odd": 5},
    }
    hostile_board.say(json.dumps(strange).encode() + b"\n")
    with _link(hostile_board) as link:
        status = board_status(link)
    assert status.home == STATUS["home"] and status.agents == (DIGEST,)
    assert status.incoming == STATUS["incoming"] and status.serves == STATUS["serves"]


def test_a_command_that_ends_while_the_board_floods_leaves_no_thread(hostile_board):
    hostile_board.answer = _flood("sendall")
    with _link(hostile_board) as link, pytest.raises(DeviceError):
        link.run("flood")
    for thread in threading.enumerate():
        if thread.name == "ssh-keepalive" or thread is link._transport:
            thread.join(30)
            assert not thread.is_alive()
