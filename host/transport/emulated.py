"""A device under qemu's user mode: its agent is a child of this host, or of another that came first."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path

from host.closing import end_process
from host.devices import DeviceEntry
from host.emulation.user import UserDevice
from host.errors import DeviceError, EdgeError, EngineError
from host.payload import PayloadError, payload_for
from host.transport.agent import OnThisMachine
from host.transport.device import Device, enrolled
from host.transport.ticket import Ticket, ticket_of
from host.transport.wire import Connection
from targets import MachineDescription, board_for

# An interpreter starts about ten times slower than on a board.
_START_S = 120.0
_TICKET_S = 60.0
_STOP_S = 10.0
_DYING_S = 2.0


class EmulatedAgent(OnThisMachine):
    """The agent of an emulated device.

    Args:
        entry: of the device.
        device: its files.
    """

    def __init__(self, entry: DeviceEntry, device: UserDevice) -> None:
        self._entry = entry
        self._device = device
        self._process = None if self._runs() else self._start()

    @property
    def _log(self) -> Path:
        return self._device.folder / "agent.log"

    def _runs(self) -> bool:
        """Whether an agent holds the folder; it may be another host's."""
        try:
            with (self._device.home / "device" / "agent.lock").open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def _start(self) -> subprocess.Popen[bytes]:
        device = self._device
        command = [str(device.python), "-m", "device_agent", "serve", "--home", str(device.home)]
        command += ["--system-root", str(device.system), "--python", str(device.python)]
        command += ["--parent-pid", str(os.getpid())]
        with self._log.open("wb") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=device.code,
                start_new_session=True,
            )
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            ready = selector.select(_START_S)
        if not ready or not process.stdout.readline():
            process.kill()
            process.wait()
            process.stdout.close()
            raise DeviceError(
                f"{self._entry.name}: the emulated agent did not start ({self._last_output()});"
                " make the device again:"
                f" {_again(self._entry)}"
            )
        return process

    def ticket(self) -> Ticket:
        """A ticket for one connection to the agent.

        Raises:
            DeviceError: it gives none.
        """
        # Tickets are files: this host's own interpreter makes one sooner than the emulated one.
        command = [sys.executable, "-m", "device_agent", "ticket", "--home", str(self._device.home)]
        try:
            done = subprocess.run(
                command,
                cwd=self._device.code,
                capture_output=True,
                text=True,
                timeout=_TICKET_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise DeviceError(f"{self._entry.name}: the emulated agent gives no ticket; try again") from error
        if done.returncode:
            said = " ".join(done.stderr.split()[-30:])
            raise DeviceError(f"{self._entry.name}: the emulated agent gives no ticket ({said}); try again")
        return ticket_of(self._entry.name, done.stdout.encode())

    def provide(self, engine: str, describe: Callable[[], MachineDescription]) -> None:
        """Provide an engine's files to the device: emulated programs read them where this host keeps them.

        Raises:
            EngineError: there is none for this board, with the reason.
        """
        description = describe()
        board = board_for(description)
        try:
            if board is None:
                raise PayloadError("no board is like this machine")
            payload = payload_for(description, board, engine)
        except PayloadError as error:
            raise EngineError(f"{self._entry.name}: {error}") from error
        path = self._device.home / "payloads.json"
        serves = json.loads(path.read_text()) if path.exists() else {}
        entry: dict[str, object] = {"kind": payload.kind, "path": str(payload.folder)}
        if payload.kind == "native":
            entry["launcher"] = [str(self._device.launcher)]
        if serves.get(engine) != entry:
            partial = path.with_suffix(f".{os.getpid()}")
            partial.write_text(json.dumps({**serves, engine: entry}))
            partial.replace(path)

    def end_reason(self) -> str:
        """The last line that the agent wrote, with how it ended if it did."""
        if self._process is None:
            return ""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_DYING_S)
        code = self._process.returncode
        ended = [] if code is None else [f"it ended with {code}"]
        return "; ".join([*ended, self._last_output()])

    def _last_output(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines() if self._log.exists() else []
        return lines[-1] if lines else ""

    def stop(self) -> None:
        """End the agent if this host has started it; more than once is no error."""
        process = self._process
        if process is None:
            return
        end_process(process, _STOP_S)
        if process.stdout is not None:
            process.stdout.close()


def connect_emulated(entry: DeviceEntry) -> Device:
    """Start an emulated device's agent and connect to it.

    Raises:
        DeviceError: its files are gone, or the agent does not start.
    """
    device = UserDevice(Path(entry.options.get("folder", "")))
    if not device.python.is_file():
        raise DeviceError(f"{entry.name}: its files are gone; make it again: {_again(entry)}")
    try:
        agent = EmulatedAgent(entry, device)
    except OSError as error:
        raise DeviceError(f"{entry.name}: the emulated agent cannot be started: {error}") from error
    try:
        ticket = agent.ticket()
        connection = Connection(ticket.port, ticket.token, entry.name, agent.dial)
    except EdgeError:
        agent.stop()
        raise
    # A device that was not closed is dropped, at the latest when the interpreter ends.
    weakref.finalize(connection, agent.stop)
    return enrolled(Device(entry.name, connection, False, agent, board=entry.board))


def _again(entry: DeviceEntry) -> str:
    board = f" --board {entry.board}" if entry.board else ""
    return f"sdk devices emulate {entry.options.get('architecture', 'aarch64')} --name {entry.name}{board}"
