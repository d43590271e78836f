"""A device that another host reaches: an actor there has the connection, and answers for it here.

`HostedBoard` is the actor's object, `connect_hosted` makes a `Device` of it. What a device is asked goes as
one call; a session's own connection is a stream whose pieces are calls.
"""

from __future__ import annotations

import contextlib
import itertools
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from host.errors import DeviceError
from host.execution import Actor, HostLost
from host.model import TimingPolicy
from host.transport.device import Device
from host.transport.wire import DisconnectedError, Stream
from targets import MachineDescription

# Bytes of one piece of a stream.
_PIECE_BYTES = 4 << 20


@dataclass(frozen=True)
class Greeting:
    """What a host says of a board to which it is connected.

    Attributes:
        number: of the connection; one more each time.
        place: what every host knows the board by.
        identity: of the connection, by which the next one ends what is left of it.
        board: kind that the user chose for it; "" for what its machine says.
        timing: what its times are worth.
    """

    number: int
    place: str
    identity: str
    board: str
    timing: TimingPolicy


class HostedBoard:
    """A board, on the host that reaches it; several threads call it.

    Args:
        name: as this host knows it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.device: Device | None = None
        self._number = 0
        self._streams: dict[int, Stream] = {}
        self._stream_numbers = itertools.count(1)
        self._connecting = threading.Lock()

    def connect(self, wait_s: float) -> Greeting:
        """Connect, in place of the connection that there was.

        Raises:
            UnknownDeviceError: this host knows no such board.
            DeviceError: it does not answer.
        """
        from host.transport import connect

        with self._connecting:
            self._release()
            self.device = device = connect(self.name, wait_s)
            self._number += 1
            return Greeting(self._number, device.place, device.identity, device.board, device.timing)

    def request(self, number: int, command: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """One command of the agent.

        Raises:
            DisconnectedError: the agent went away, or the connection is one of before.
            EdgeError: the agent refused.
        """
        device = self._of(number)
        try:
            return device.request(command, **arguments)
        except DeviceError as error:
            if device.broken:
                raise DisconnectedError(device.agent.end_reason() or str(error)) from error
            raise

    def put(self, number: int, content: bytes) -> None:
        """Send the content of a file to the board; see `Device.upload`."""
        device = self._of(number)
        with tempfile.TemporaryDirectory(prefix="edgetlm-") as folder:
            path = Path(folder) / "file"
            path.write_bytes(content)
            device.upload(path)

    def provide(self, number: int, engine: str) -> None:
        """See `Agent.provide`."""
        device = self._of(number)
        device.agent.provide(engine, device.describe)

    def end_reason(self, number: int) -> str:
        """See `Agent.end_reason`."""
        try:
            return self._of(number).agent.end_reason()
        except DisconnectedError as error:
            return str(error)

    def stop(self, number: int) -> None:
        """Make commands under way fail; an earlier connection is left alone."""
        device = self.device
        if device is not None and number == self._number:
            device.agent.stop()

    def close(self, number: int) -> None:
        """End the connection; one of before is ended already."""
        with self._connecting:
            if number == self._number:
                self._release()

    def dial(self, number: int, port: int) -> int:
        """A stream to a port of the board; returns its number. OSError where nothing answers."""
        stream = self._of(number).dial(port)
        self._streams[name := next(self._stream_numbers)] = stream
        return name

    def send(self, stream: int, content: bytes) -> None:
        """Send all bytes of `content` on a stream."""
        self._stream(stream).sendall(content)

    def receive(self, stream: int, most: int, timeout_s: float | None) -> bytes:
        """What has come, at most so many bytes; b"" once the other end has closed."""
        buffer = bytearray(min(most, _PIECE_BYTES))
        one = self._stream(stream)
        one.settimeout(timeout_s)
        with memoryview(buffer) as view:
            got = one.recv_into(view)
        return bytes(buffer[:got])

    def hang_up(self, stream: int) -> None:
        """Close the stream of this number; no error where it is closed already."""
        one = self._streams.pop(stream, None)
        if one is not None:
            with contextlib.suppress(OSError):
                one.close()

    def _stream(self, number: int) -> Stream:
        stream = self._streams.get(number)
        if stream is None:
            raise ConnectionResetError("the stream was closed")
        return stream

    def _of(self, number: int) -> Device:
        device = self.device
        if device is None or number != self._number:
            raise DisconnectedError("its host has connected anew")
        return device

    def _release(self) -> None:
        for stream in list(self._streams):
            self.hang_up(stream)
        device, self.device = self.device, None
        if device is not None:
            # What it says on closing is of a loss that is known, or of nothing that is needed any more.
            with contextlib.suppress(DeviceError, OSError):
                device.close()


def connect_hosted(actor: Actor, name: str, wait_s: float) -> Device:
    """Connect to a device through the actor that reaches it.

    Args:
        actor: of a `HostedBoard`.
        name: of the device.
        wait_s: how long its sessions wait where another has the device.

    Raises:
        UnknownDeviceError: its host knows no such device.
        DeviceError: it does not answer, or its host does not.
    """
    greeting: Greeting = actor.call("connect", wait_s)
    connection = _HostedConnection(actor, greeting)
    # Files lie on this host, and are sent.
    device = Device(name, connection, False, HostedAgent(actor, greeting.number), greeting.board)
    device.wait_s, device.place, device.timing = wait_s, greeting.place, greeting.timing
    return device


class _HostedConnection:
    """What a `Device` needs of a `host.transport.wire.Connection`."""

    def __init__(self, actor: Actor, greeting: Greeting) -> None:
        self._actor = actor
        self._number = greeting.number
        self.identity = greeting.identity

    def request(
        self,
        header: dict[str, Any],
        blobs: Sequence[bytes | memoryview] = (),
        silence_s: float | None = None,
    ) -> tuple[dict[str, Any], bytearray]:
        arguments = dict(header)
        command = arguments.pop("command")
        assert not blobs
        return self._call("request", command, arguments), bytearray()

    def send_file(self, header: dict[str, Any], path: Path) -> dict[str, Any]:
        self._call("put", path.read_bytes())
        return {"ok": True}

    def close(self) -> None:
        with contextlib.suppress(HostLost):
            self._actor.call("close", self._number)

    def _call(self, method: str, *arguments: Any) -> Any:
        try:
            return self._actor.call(method, self._number, *arguments)
        except HostLost as error:
            raise DisconnectedError(str(error)) from error


class HostedAgent:
    """A `host.transport.device.Agent` on another host.

    Attributes:
        number: of the connection that its host has.
    """

    def __init__(self, actor: Actor, number: int) -> None:
        self.number = number
        self._actor = actor

    def end_reason(self) -> str:
        """See `Agent.end_reason`."""
        try:
            return str(self._actor.call("end_reason", self.number))
        except HostLost as error:
            return str(error)

    def stop(self) -> None:
        """See `Agent.stop`."""
        # Its host may be gone, and no call waits for it.
        with contextlib.suppress(HostLost):
            self._actor.begin("stop", self.number)

    def dial(self, port: int) -> Stream:
        """See `Agent.dial`."""
        try:
            return _HostedStream(self._actor, self._actor.call("dial", self.number, port))
        except (HostLost, DisconnectedError) as error:
            raise ConnectionResetError(str(error)) from error

    def forward(self, port: int) -> int:
        """No port of this machine leads there.

        TVM waits for answers with the lock of the interpreter: they could only be carried by a
        process of its own that has joined the cluster.

        Raises:
            DeviceError: always.
        """
        raise DeviceError("kernels of a board that another host reaches are timed by that host")

    def provide(self, engine: str, describe: Callable[[], MachineDescription]) -> None:
        """See `Agent.provide`."""
        try:
            self._actor.call("provide", self.number, engine)
        except DisconnectedError as error:
            raise HostLost(str(error)) from error


class _HostedStream:
    """A `Stream` whose other end is on another host."""

    def __init__(self, actor: Actor, number: int) -> None:
        self._actor = actor
        self._number = number
        self._timeout_s: float | None = None

    def settimeout(self, seconds: float | None, /) -> None:
        self._timeout_s = seconds

    def sendall(self, data: bytes | bytearray | memoryview, /) -> None:
        with memoryview(data) as view:
            for begin in range(0, len(view), _PIECE_BYTES):
                self._call("send", bytes(view[begin : begin + _PIECE_BYTES]))

    def recv_into(self, buffer: memoryview, /) -> int:
        content = self._call("receive", len(buffer), self._timeout_s)
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._call("hang_up")

    def _call(self, method: str, *arguments: Any) -> Any:
        try:
            return self._actor.call(method, self._number, *arguments)
        except HostLost as error:
            raise ConnectionResetError(str(error)) from error
