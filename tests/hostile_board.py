"""A board that is somebody else's: an SSH server that lets everybody in and answers as the test says."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import paramiko
import pytest

Answer = Callable[[paramiko.Channel], None]


class _Everybody(paramiko.ServerInterface):
    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return paramiko.AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=self._serve, args=(channel,), daemon=True).start()
        return True

    def _serve(self, channel: paramiko.Channel) -> None:
        # The client hangs up on most of what is tried here.
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            # The request is answered by the time that the client has sent all it has.
            while channel.recv(1 << 16):
                pass
            self._answer(channel)
            channel.send_exit_status(0)
            channel.close()


class HostileBoard:
    """The server.

    Attributes:
        port: on the loopback interface.
        identity: private key that it takes, as it takes every other.
        known_hosts: a file by which it is known.
        answer: what it does with the channel of a command.
    """

    def __init__(self, folder: Path) -> None:
        key = paramiko.ECDSAKey.generate()
        self.identity = folder / "id_test"
        paramiko.ECDSAKey.generate().write_private_key_file(str(self.identity))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.known_hosts = folder / "known"
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {key.get_name()} {key.get_base64()}\n")
        self.answer: Answer = lambda channel: None
        self._key = key
        self._served: list[paramiko.Transport] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def say(self, output: bytes, messages: bytes = b"") -> None:
        """Answer every command with these."""

        def answer(channel: paramiko.Channel) -> None:
            channel.sendall_stderr(messages)
            channel.sendall(output)

        self.answer = answer

    def _accept(self) -> None:
        while True:
            try:
                stream, _ = self._listener.accept()
            except OSError:
                return
            transport = paramiko.Transport(stream)
            transport.add_server_key(self._key)
            self._served.append(transport)
            with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
                transport.start_server(server=_Everybody(lambda channel: self.answer(channel)))

    def close(self) -> None:
        """End it with its connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for transport in self._served:
            transport.close()


@pytest.fixture
def hostile_board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HostileBoard]:
    """A hostile board, with the user's own SSH configuration out of the way."""
    home = tmp_path / "client"
    (home / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    board = HostileBoard(tmp_path)
    yield board
    board.close()
