"""An SSH connection to a board: commands, files, forwarded ports, and detection of a lost connection."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import paramiko

from device_agent.contract.text import printable
from host.address import parse_address
from host.closing import Closing
from host.errors import DeviceError
from host.ssh.bounded import BoundedTransport
from host.ssh.channel import ChannelStream
from host.ssh.endpoint import Endpoint, endpoint_for
from host.ssh.host_keys import check_host_key, fingerprint_of, known_keys, prefer_known
from host.ssh.login import log_in
from host.ssh.output import Completed, TooMuchOutput, collect
from host.ssh.relay import Relay
from host.ssh.sockets import CONNECT_S, direct_socket, proxy_socket

_CHANNEL_S = 20.0
# How often the board is asked whether it is there, and how long its answer may take.
_KEEPALIVE_S = 10.0
_SILENCE_S = 20.0
_WINDOW_BYTES = 8 << 20
_NODELAY_S = 5.0
# How long paramiko's reader may take to see what a writer has run into.
_NOTICE_S = 1.0
# What paramiko raises when a connection is not, or no longer, usable.
_BROKEN = (paramiko.SSHException, EOFError, OSError)


class SshConnection(Closing):
    """An authenticated SSH connection; a context manager. Several threads may use it.

    Attributes:
        name: of the device, for messages.
        endpoint: its SSH server.

    Args:
        name: of the device.
        endpoint: its SSH server.
        through: a connection to the jump host; by default the endpoint's own jump hosts or proxy command.

    Raises:
        DeviceError: it does not answer, shows an unknown host key, or refuses every key.
    """

    def __init__(self, name: str, endpoint: Endpoint, through: SshConnection | None = None) -> None:
        self.name = name
        self.endpoint = endpoint
        self._cleanups: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._relay: Relay | None = None
        self._ended = threading.Event()
        self._reason = ""
        try:
            self._transport = self._open_transport(self._connect(through))
        except BaseException:
            self._clean_up()
            raise
        threading.Thread(target=self._send_keepalives, name="ssh-keepalive", daemon=True).start()

    @classmethod
    def to(
        cls,
        name: str,
        host: str,
        user: str = "",
        port: int = 0,
        identity: str = "",
        known_hosts: str = "",
    ) -> SshConnection:
        """Connect to a host by the user's SSH configuration; see `endpoint_for`."""
        return cls(name, endpoint_for(host, user, port, identity, known_hosts))

    def _connect(self, through: SshConnection | None) -> Any:
        """A connected socket, or a channel that paramiko can use as one."""
        endpoint = self.endpoint
        if through is not None:
            return through._open(endpoint.host, endpoint.port)
        if endpoint.jumps:
            before: SshConnection | None = None
            for text in endpoint.jumps:
                hop = _jump_endpoint(text)
                before = SshConnection(f"{self.name}, by way of {hop.alias}", hop, before)
                self._cleanups.append(before.close)
            assert before is not None
            before.request_nodelay()
            return before._open(endpoint.host, endpoint.port)
        if endpoint.proxy_command:
            connected, end = proxy_socket(endpoint.proxy_command)
            self._cleanups.append(end)
            return connected
        connected = direct_socket(self.name, endpoint)
        self._cleanups.append(connected.close)
        return connected

    def _open_transport(self, stream: Any) -> paramiko.Transport:
        known = known_keys(self.endpoint)
        try:
            transport = BoundedTransport(stream, _WINDOW_BYTES)
            self._cleanups.append(transport.close)
            transport.banner_timeout = transport.handshake_timeout = transport.auth_timeout = CONNECT_S
            transport.channel_timeout = _CHANNEL_S
            prefer_known(transport, known)
            transport.start_client(timeout=CONNECT_S)
            check_host_key(self.name, self.endpoint, transport.get_remote_server_key(), known)
            log_in(self.name, self.endpoint, transport)
        except _BROKEN as error:
            where = f"{self.endpoint.host}:{self.endpoint.port}"
            raise DeviceError(
                f"{self.name}: no SSH connection with {where} ({printable(error) or 'it was cut'});"
                f" see whether `ssh {self.endpoint.address}` works"
            ) from error
        return transport

    # -- what it is for

    @property
    def alive(self) -> bool:
        """Whether the connection can still be used."""
        return not self._ended.is_set() and bool(self._transport.is_active())

    @property
    def host_key(self) -> str:
        """Fingerprint of the key by which the server is known."""
        return fingerprint_of(self._transport.get_remote_server_key())

    def end_reason(self) -> str:
        """Why the connection can no longer be used, "" while it can."""
        if self.alive:
            return ""
        return self._reason or f"the SSH connection with {self.endpoint.host} was cut"

    def run(self, command: str, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        """Run a command by the user's shell on the board and wait for its end.

        Args:
            command: as the shell reads it.
            stdin: what it reads.
            timeout_s: longest time.

        Raises:
            DeviceError: the connection was lost, or the command took too long or wrote more than
                `limits.json` allows; its channel is closed then.
        """
        until = time.monotonic() + timeout_s
        with self._guard(f"a command ({_shortened(command)})"):
            channel = self._transport.open_session(timeout=_CHANNEL_S)
            try:
                channel.settimeout(timeout_s)
                channel.exec_command(command)
                stream = ChannelStream(channel)
                # A command that ends without reading gives the reason on its other channels.
                with contextlib.suppress(ConnectionResetError):
                    stream.sendall(stdin)
                stream.finish_sending()
                output, messages = collect(channel, until)
                if not channel.status_event.wait(max(until - time.monotonic(), 0.1)):
                    raise TimeoutError
                code = int(channel.recv_exit_status())
                # Without a status a signal ended the command, or the connection ended before it. Paramiko
                # closes the channels of a lost connection before it reports the loss.
                if code == -1 and not (self.alive and channel.eof_received):
                    raise EOFError
            except TimeoutError as error:
                raise DeviceError(
                    f"{self.name}: {_shortened(command)} did not end within {timeout_s:.0f} s; see whether"
                    f" the board is overloaded: ssh {self.endpoint.address} uptime"
                ) from error
            except TooMuchOutput as error:
                raise DeviceError(
                    f"{self.name}: {_shortened(command)} answers with {error}, which no EdgeTLM agent does;"
                    f" see what runs there: ssh {self.endpoint.address}"
                ) from error
            finally:
                _close(channel)
        return Completed(code, output, messages.decode("utf-8", "replace"))

    def dial(self, port: int) -> ChannelStream:
        """Connect to a port of the board's loopback interface.

        Raises:
            ConnectionError: nothing answers there, or the connection was cut.
        """
        try:
            return ChannelStream(
                self._transport.open_channel("direct-tcpip", ("127.0.0.1", port), ("127.0.0.1", 0))
            )
        except paramiko.ChannelException as error:
            # "Administratively prohibited": a port without a listener is answered by code 2.
            if error.code == 1:
                raise ConnectionRefusedError(
                    "the board's SSH server forbids forwarding; set AllowTcpForwarding yes in its sshd_config"
                ) from error
            raise ConnectionRefusedError(str(error)) from error
        except _BROKEN as error:
            raise ConnectionResetError(self.end_reason() or str(error)) from error

    def request_nodelay(self) -> None:
        """Make the server send small packets at once; for connections that only forward ports.

        OpenSSH turns TCP_NODELAY on for connections that run a command (packet.c, session.c). On other
        connections, some answers of several packets wait 40 ms for this machine's delayed acknowledgement. On
        a server that runs no commands this has no effect.
        """
        with contextlib.suppress(DeviceError):
            self.run("true", timeout_s=_NODELAY_S)

    def forward(self, port: int) -> int:
        """A port of this machine that is forwarded to a port of the board, for one connection by this user.

        Raises:
            DeviceError: the connection was cut.
        """
        if not self.alive:
            raise DeviceError(f"{self.name}: {self.end_reason()}; connect again")
        with self._lock:
            if self._relay is None:
                self._relay = Relay(self.name, self.endpoint)
                self._cleanups.append(self._relay.close)
        return self._relay.forward(port)

    @contextlib.contextmanager
    def sftp(self) -> Iterator[paramiko.SFTPClient]:
        """Files of the board.

        Raises:
            DeviceError: the connection was cut, or its server has no SFTP. Errors of files stay OSError.
        """
        try:
            client = paramiko.SFTPClient.from_transport(self._transport, window_size=_WINDOW_BYTES)
        except _BROKEN as error:
            raise DeviceError(
                f"{self.name}: no files can be sent ({self.end_reason() or error}); the board's SSH server"
                " needs its SFTP subsystem (Subsystem sftp internal-sftp in sshd_config)"
            ) from error
        channel = client.get_channel()
        assert channel is not None
        channel.settimeout(_SILENCE_S + _KEEPALIVE_S)
        try:
            yield client
        except (paramiko.SSHException, EOFError, TimeoutError) as error:
            raise self._broken_off("sending files", error) from error
        except OSError as error:
            if self.alive and not channel.closed:
                raise
            raise self._broken_off("sending files", error) from error
        finally:
            _close(client)

    def _open(self, host: str, port: int) -> paramiko.Channel:
        """A channel to an address as the server sees it."""
        with self._guard(f"the way to {host}:{port}"):
            return self._transport.open_channel("direct-tcpip", (host, port), ("127.0.0.1", 0))

    @contextlib.contextmanager
    def _guard(self, what: str) -> Iterator[None]:
        try:
            yield
        except _BROKEN as error:
            raise self._broken_off(what, error) from error

    def _broken_off(self, what: str, error: BaseException) -> DeviceError:
        # Who writes learns of a lost connection a moment before paramiko's reader, which has the reason.
        self._transport.join(_NOTICE_S)
        reason = printable(self.end_reason() or error) or type(error).__name__
        return DeviceError(f"{self.name}: {what} broke off: {reason}; run the same command again, it goes on")

    # -- its end

    def _send_keepalives(self) -> None:
        """Request an answer from the server at intervals, to detect a server that no longer answers."""
        while not self._ended.wait(_KEEPALIVE_S) and self._transport.is_active():
            watch = threading.Timer(_SILENCE_S, self._end_silent)
            watch.daemon = True
            watch.start()
            try:
                # Every server answers a request that it does not know with a refusal (RFC 4254, 4).
                self._transport.global_request("keepalive@openssh.com", wait=True)
            except _BROKEN:
                return
            finally:
                watch.cancel()

    def _end_silent(self) -> None:
        self._reason = f"{self.endpoint.host} has not answered for {_SILENCE_S:.0f} s"
        self._transport.close()

    def close(self) -> None:
        """Close the connection and everything that uses it; more than once is no error."""
        self._ended.set()
        self._clean_up()

    def _clean_up(self) -> None:
        while self._cleanups:
            with contextlib.suppress(*_BROKEN):
                self._cleanups.pop()()


def _jump_endpoint(text: str) -> Endpoint:
    """The endpoint of one host of ProxyJump: [user@]host[:port]."""
    user, host, port = parse_address(text, "ProxyJump")
    return endpoint_for(host, user, port)


def _close(end: paramiko.Channel | paramiko.SFTPClient) -> None:
    # Closing sends a message, which fails on a lost connection; what lost it is the error to raise.
    with contextlib.suppress(*_BROKEN):
        end.close()


def _shortened(command: str) -> str:
    return printable(command, 60)
