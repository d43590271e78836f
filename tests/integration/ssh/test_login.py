"""Who is let in, who is believed, and what the user is told to type."""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
import sys
import time

import psutil
import pytest

from host.devices import DeviceEntry
from host.errors import DeviceError
from host.ssh import SshConnection
from host.ssh import connection as connection_module
from host.ssh.endpoint import endpoint_for
from tests.integration.ssh.sshd import Sshd, cutting, make_key

_RELAY = """
import socket, sys, threading
server = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def out():
    while data := server.recv(65536):
        sys.stdout.buffer.write(data); sys.stdout.buffer.flush()
threading.Thread(target=out, daemon=True).start()
while data := sys.stdin.buffer.read1(65536):
    server.sendall(data)
"""


def _refusal(server, **arguments):
    with pytest.raises(DeviceError) as caught:
        SshConnection.to("bench", "127.0.0.1", port=server.port, **arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_an_unknown_host_key_is_refused_with_the_command_that_accepts_it(server, client_home):
    message = _refusal(server)
    assert "is unknown (ssh-ed25519 SHA256:" in message
    command = message.partition("accept it: ")[2]
    assert command.startswith(f"ssh-keyscan -p {server.port} -t ed25519 127.0.0.1 >> {client_home}")
    subprocess.run(command, shell=True, check=True, stderr=subprocess.DEVNULL)
    with SshConnection.to("bench", "127.0.0.1", port=server.port) as link:
        assert link.run("echo yes").stdout == b"yes\n"


def test_a_changed_host_key_is_refused_loudly(server, client_home):
    kind, key, *_ = make_key(client_home / "other").with_suffix(".pub").read_text().split()
    known = client_home / ".ssh" / "known_hosts"
    known.write_text(f"[127.0.0.1]:{server.port} {kind} {key}\n")
    message = _refusal(server)
    assert "HAS CHANGED" in message
    assert f"{known}:1" in message
    assert f"ssh-keygen -R '[127.0.0.1]:{server.port}' && ssh-keyscan -p {server.port}" in message


def test_a_revoked_host_key_is_refused_even_where_it_is_known(board, client_home):
    known = client_home / ".ssh" / "known_hosts"
    known.write_text(known.read_text() + "@revoked " + known.read_text())
    assert f"{known}:2 revokes" in _refusal(board)


def test_hashed_and_patterned_lines_of_known_hosts_count(board, client_home):
    known = client_home / ".ssh" / "known_hosts"
    plain = known.read_text()
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(known)], check=True, capture_output=True)
    assert known.read_text().startswith("|1|")
    SshConnection.to("bench", "127.0.0.1", port=board.port).close()
    known.write_text(plain.replace("127.0.0.1", "127.0.0.?"))
    SshConnection.to("bench", "127.0.0.1", port=board.port).close()
    known.write_text(plain.replace("[127.0.0.1]", "!" + plain.split()[0] + ",[127.0.0.1]"))
    assert "is unknown" in _refusal(board)


def test_a_key_that_the_board_does_not_know(board, client_home):
    for path in (client_home / ".ssh").glob("id_*"):
        path.unlink()
    make_key(client_home / ".ssh" / "id_ed25519")
    message = _refusal(board)
    assert f"refuses {client_home}/.ssh/id_ed25519" in message
    assert "--identity FILE" in message


def test_no_key_at_all(board, client_home):
    for path in (client_home / ".ssh").glob("id_*"):
        path.unlink()
    assert f"ssh-keygen -t ed25519 && ssh-copy-id -p {board.port}" in _refusal(board)


def test_a_locked_key_is_named_with_what_unlocks_it_and_the_agent_serves_it(board, client_home, monkeypatch):
    own = client_home / ".ssh" / "id_ed25519"
    subprocess.run(
        ["ssh-keygen", "-q", "-p", "-N", "geheim", "-f", str(own)], check=True, capture_output=True
    )
    assert f"ssh-add {own}" in _refusal(board)
    ask = client_home / "ask"
    ask.write_text("#!/bin/sh\necho geheim\n")
    ask.chmod(0o700)
    socket_path = client_home / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(socket_path)], stdout=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 60
        while not socket_path.exists() and time.monotonic() < until:
            time.sleep(0.01)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket_path))
        monkeypatch.setenv("SSH_ASKPASS", str(ask))
        monkeypatch.setenv("SSH_ASKPASS_REQUIRE", "force")
        subprocess.run(["ssh-add", "-q", str(own)], check=True, capture_output=True)
        SshConnection.to("bench", "127.0.0.1", port=board.port).close()
    finally:
        agent.terminate()
        agent.wait(60)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("PubkeyAuthentication no", "PasswordAuthentication yes"), "takes no keys, only .*password"),
        (("PasswordAuthentication yes", "AuthorizedKeysFile none"), r"by password: ssh-copy-id -p \d+ "),
        (
            ("AuthenticationMethods publickey,password", "PasswordAuthentication yes"),
            "wants password",
        ),
        (("MaxAuthTries 1", "AuthorizedKeysFile none"), "refuses|ended the login"),
    ],
)
def test_logins_that_want_what_nobody_can_type(tmp_path, client_home, lines, message):
    sshd = Sshd(tmp_path / "strict", client_home, lines)
    sshd.start()
    try:
        sshd.accept_host_key()
        assert re.search(message, _refusal(sshd))
    finally:
        sshd.stop()


def test_forwarding_that_is_off_is_said(tmp_path, client_home):
    sshd = Sshd(tmp_path / "strict", client_home, ("AllowTcpForwarding no",))
    sshd.start()
    try:
        sshd.accept_host_key()
        with (
            SshConnection.to("bench", "127.0.0.1", port=sshd.port) as link,
            pytest.raises(ConnectionRefusedError, match="set AllowTcpForwarding yes"),
        ):
            link.dial(sshd.port)
    finally:
        sshd.stop()


def test_ports_are_served_without_delay(tmp_path, client_home):
    """The server says itself when it stops collecting small packets (its debug2, misc.c)."""
    sshd = Sshd(tmp_path / "telling", client_home, ("LogLevel DEBUG2",))
    sshd.start()
    try:
        sshd.accept_host_key()
        with (
            socket.create_server(("127.0.0.1", 0)) as end,
            SshConnection.to("bench", "127.0.0.1", port=sshd.port) as link,
        ):
            port = link.forward(end.getsockname()[1])
            with socket.create_connection(("127.0.0.1", port)), end.accept()[0]:
                before, opened, _ = sshd.log().partition("ctype direct-tcpip")
                assert opened and "setting TCP_NODELAY" in before
    finally:
        sshd.stop()


def test_another_identity_file(board, client_home):
    own = client_home / ".ssh" / "id_ed25519"
    own.rename(client_home / "key")
    own.with_suffix(".pub").rename(client_home / "key.pub")
    SshConnection.to("bench", "127.0.0.1", port=board.port, identity=str(client_home / "key")).close()


def test_an_alias_of_an_included_configuration(board, client_home):
    ssh = client_home / ".ssh"
    (ssh / "id_ed25519").rename(ssh / "work")
    (ssh / "id_ed25519.pub").unlink()
    (ssh / "config").write_text("Include boards/*\nHost *\n  Port 1\n")
    (ssh / "boards").mkdir()
    (ssh / "boards" / "bench").write_text(
        f"Host bench\n  HostName 127.0.0.1\n  Port {board.port}\n  IdentityFile ~/.ssh/work\n"
    )
    endpoint = endpoint_for("bench")
    assert (endpoint.host, endpoint.port, endpoint.identities) == ("127.0.0.1", board.port, (ssh / "work",))
    with SshConnection.to("bench", "bench") as link:
        assert link.run("echo $HOME").stdout.decode().strip() == str(board.home)


def test_through_a_proxy_command_and_a_jump_host(board, client_home):
    relay = client_home / "relay.py"
    relay.write_text(_RELAY)
    (client_home / ".ssh" / "config").write_text(
        f"Host bench\n  HostName 127.0.0.1\n  Port {board.port}\n"
        f"Host proxied\n  HostName 127.0.0.1\n  Port {board.port}\n"
        f"  ProxyCommand {sys.executable} {relay} %h %p\n"
        f"Host behind\n  HostName 127.0.0.1\n  Port {board.port}\n  ProxyJump bench\n"
    )
    for alias in ("proxied", "behind"):
        with SshConnection.to(alias, alias) as link:
            assert link.run("echo yes").stdout == b"yes\n"


def test_nothing_listens(server):
    # Bound and not listening: no other program takes it meanwhile.
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        with pytest.raises(
            DeviceError, match=f"nothing listens at 127.0.0.1:{port}; start the board's SSH server"
        ):
            SshConnection.to("bench", "127.0.0.1", port=port)


def test_a_board_that_falls_silent_is_noticed(board, monkeypatch):
    monkeypatch.setattr(connection_module, "_KEEPALIVE_S", 0.1)
    monkeypatch.setattr(connection_module, "_SILENCE_S", 0.5)
    with SshConnection.to("bench", "127.0.0.1", port=board.port) as link:
        for process in board.logins():
            # A login of before may end while it is listed; that of this connection stays.
            with contextlib.suppress(psutil.NoSuchProcess):
                for one in [process, *process.children()]:
                    one.suspend()
        try:
            with pytest.raises(DeviceError, match="has not answered for"):
                link.run("echo never")
        finally:
            for process in board.logins():
                for one in [process, *process.children()]:
                    # A login whose client left may have ended since it was listed.
                    with contextlib.suppress(psutil.NoSuchProcess):
                        one.resume()


def test_a_command_that_does_not_end_is_given_up(board):
    with SshConnection.to("bench", "127.0.0.1", port=board.port) as link:
        with pytest.raises(DeviceError, match="did not end within 1 s"):
            link.run("sleep 60", timeout_s=0.6)
        assert link.run("echo still here").stdout == b"still here\n"


def test_a_connection_that_is_cut_at_once(server):
    with cutting(server.port, 100) as proxy, pytest.raises(DeviceError, match="no SSH connection"):
        SshConnection.to("bench", "127.0.0.1", port=proxy.port)


def test_a_board_without_an_agent_says_what_to_type(entry):
    from host.transport import connect

    assert isinstance(entry, DeviceEntry)
    with pytest.raises(
        DeviceError, match="no agent is installed there; type: sdk devices install-agent bench"
    ):
        connect("bench")
