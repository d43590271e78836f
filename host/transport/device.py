"""A device as the host sees it: what it is, how it is doing, its sessions and its bundles."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from device_agent.contract.fields import Fields
from device_agent.contract.manifest import MANIFEST, ContractError
from device_agent.contract.text import printable
from device_agent.contract.trust import TrustedKeys, trusted_keys
from host.closing import Closing
from host.errors import BundleError, DeviceBusy, DeviceError
from host.files import file_hash
from host.keys import HostKey, host_key
from host.model import BOARD
from host.transport.agent import Agent, AgentConnection
from host.transport.replies import fields_of, installed_of, machine_of, sensor_of, state_of
from host.transport.session import Session
from host.transport.wire import SILENCE_S, DisconnectedError, Stream
from targets import MachineDescription

__all__ = ["Device", "Session"]


class Device(Closing):
    """A connected device; a context manager. Several threads may use it.

    Args:
        name: the user's name for it.
        connection: to its agent.
        shares_files: paths of the host are valid on the device, so models need not be sent to be run.
        agent: how the transport reaches the agent.
        board: name of the kind of board that the user chose for it, "" for what its machine says.

    Attributes:
        wait_s: how long `open_session` waits where another host has the device.
        place: what every host knows it by, whatever its users call it; "" until it is known.
        broken: whether the agent went away.
        timing: what its times are worth.
    """

    def __init__(
        self,
        name: str,
        connection: AgentConnection,
        shares_files: bool,
        agent: Agent,
        board: str = "",
    ) -> None:
        self.name = name
        self.shares_files = shares_files
        self._connection = connection
        self.agent = agent
        self.wait_s = 0.0
        self.place = ""
        self._held = False
        self.board = board
        self.timing = BOARD
        self._lock = threading.Lock()
        self._sessions: list[Session] = []
        self._installed: dict[str, str] = {}
        self._closed = False
        # The agent went away: its sessions are gone with it and need not be closed.
        self.broken = False

    def describe(self) -> MachineDescription:
        """What the machine is.

        Raises:
            DeviceError: it went away.
        """
        return machine_of(self._ask("describe"), self.board)

    def state(self) -> dict[str, Any]:
        """Clocks, load, temperatures and throttling at this moment."""
        return state_of(self._ask("state"))

    def sensor(self) -> dict[str, Any]:
        """The power sensor: `source`, `rails`, `boundary`, and `unavailable` with the reason or None."""
        return sensor_of(self._ask("sensor"))

    def open_session(
        self,
        engine: str,
        threads: int = 1,
        time_limit_s: float = 120.0,
        memory_limit_bytes: int | None = None,
        python: str | None = None,
    ) -> Session:
        """Open a session: a process on the device for one engine.

        Args:
            engine: "tvm", "onnxruntime", "litert", "torch" or "openvino".
            threads: that the engine uses.
            time_limit_s: longest time for one command; the executor is killed and replaced after it.
            memory_limit_bytes: largest resident memory, 0 for no limit; by default 80% of the device's.
            python: another interpreter on the device, for an engine in an environment of its own.

        Raises:
            EngineError: the engine is not installed there.
            DeviceBusy: another host has the device, and had it for `wait_s` seconds.
            DeviceError: the device went away.
        """
        if python is None:
            self.agent.provide(engine, self.describe)
        contact = self._in_line(
            "session.open",
            engine=engine,
            threads=threads,
            time_limit_s=time_limit_s,
            memory_limit_bytes=memory_limit_bytes,
            python=python,
        )
        session = Session(self, engine, threads, contact, time_limit_s)
        self._sessions.append(session)
        return session

    def reserve(self) -> None:
        """Reserve the device for this host until the connection ends, between sessions too.

        A session has it only as long as it is open: another host that waits would come in between.

        Raises:
            DeviceBusy: another host has the device, and had it for `wait_s` seconds.
            DeviceError: the device went away.
        """
        self._in_line("device.hold")
        self._held = True

    def _in_line(self, command: str, **arguments: Any) -> dict[str, Any]:
        try:
            return self.request(command, wait_s=self.wait_s, **arguments)
        except DeviceBusy as error:
            raise DeviceBusy(f"{error}; wait for it with --wait 10m, or try again later") from error

    def upload(self, path: Path) -> str:
        """Send a file unless the device has it; returns its SHA-256.

        Raises:
            DeviceFull: no space there.
        """
        digest = file_hash(path)
        if not self._ask("file.has", sha256=digest).truth("has"):
            with self._lock:
                self._need_open()
                try:
                    self._connection.send_file({"command": "file.put", "sha256": digest}, path)
                except DisconnectedError as error:
                    raise self._gone(error) from error
        return digest

    def install(self, bundle: Path, name: str) -> str:
        """Install a bundle's directory under a name, without activating it.

        Returns:
            The version.

        Raises:
            BundleError: it is incomplete or damaged.
            DeviceFull: no space on the device.
        """
        if not (bundle / MANIFEST).is_file():
            raise BundleError(f"{bundle} holds no manifest.json: it is not a bundle")
        hashes = {file.name: self.upload(file) for file in sorted(bundle.iterdir()) if file.is_file()}
        version = self._ask("bundle.install", name=name, files=hashes).name("version")
        self._installed[name] = version
        return version

    def activate(self, name: str, version: str | None = None) -> None:
        """Make a version the active one; by default the one that was installed last by this object.

        Raises:
            BundleError: there is no such version.
        """
        version = version or self._installed.get(name)
        if version is None:
            raise BundleError(f"{self.name}: no version of {name} given and none installed just now")
        self.request("bundle.activate", name=name, version=version)

    def bundles(self) -> list[dict[str, Any]]:
        """All installed versions: `name`, `version`, `active`, `earlier`, `path`, `backend` and `manifest`.

        `earlier` is true of the version that `rollback` would make active.
        """
        return [installed_of(one) for one in self._ask("bundle.list").objects("bundles")]

    def bundle_path(self, name: str) -> str:
        """Folder of a bundle's active version on the device.

        Raises:
            BundleError: no such bundle, or none of its versions is active.
        """
        return self._ask("bundle.path", name=name).text("path")

    def rollback(self, name: str) -> str:
        """Make the version active that was so before; returns it.

        Raises:
            BundleError: no such bundle, or no earlier version.
        """
        return self._ask("bundle.rollback", name=name).name("version")

    def enrol(self, key: HostKey) -> bool:
        """Have the device trust this host's bundles, unless its key was revoked there.

        Returns:
            Whether they are trusted.
        """
        return self._ask("keys.enrol", key=key.public, name=key.name).truth("trusted")

    def keys(self) -> TrustedKeys:
        """Whose bundles the device runs, and what it refuses.

        Raises:
            BundleError: the device's file of keys is damaged.
            DeviceError: the answer is none.
        """
        reply = self.request("keys.list")
        try:
            return trusted_keys(reply.get("keys"), reply.get("revoked"))
        except ContractError as error:
            raise DeviceError(f"{self.name}: its list of keys cannot be read: {error}") from error

    def trust_key(self, key: str, name: str) -> None:
        """Have the device trust a key, whatever was revoked before.

        Raises:
            BundleError: it is no key.
        """
        self.request("keys.trust", key=key, name=name)

    def revoke(self, identity: str) -> str:
        """Have the device refuse a key or a version of a bundle; returns its name.

        Raises:
            BundleError: the device knows nothing, or several things, of this name.
        """
        return printable(self._ask("keys.revoke", identity=identity).object("revoked").text("name"))

    def remove(self, name: str) -> None:
        """Remove a bundle with all its versions.

        Raises:
            BundleError: no such bundle.
        """
        self.request("bundle.remove", name=name)

    def dial(self, port: int) -> Stream:
        """Connect to a port of the device's loopback interface.

        Raises:
            OSError: nothing answers there, or the device went away.
        """
        return self.agent.dial(port)

    def forward(self, port: int) -> int:
        """A port on this machine that leads to a port of the device, for clients that dial for themselves.

        It takes one connection, from this machine only, and is closed with the device.

        Raises:
            DeviceError: the device went away.
        """
        self._need_open()
        return self.agent.forward(port)

    def request(self, command: str, **arguments: Any) -> dict[str, Any]:
        """One command of the agent.

        Raises:
            DeviceError: the agent went away, or refused.
        """
        with self._lock:
            self._need_open()
            try:
                silence_s = SILENCE_S + float(arguments.get("wait_s") or 0.0)
                return self._connection.request({"command": command, **arguments}, silence_s=silence_s)[0]
            except DisconnectedError as error:
                raise self._gone(error) from error

    def _ask(self, command: str, **arguments: Any) -> Fields:
        return fields_of(self.name, self.request(command, **arguments))

    def replace(self, lost: Device) -> None:
        """End on the device what is left of a connection that was cut, and have it again if that one did.

        The device may not have noticed yet, and would answer this host that it is in use.

        Args:
            lost: the device as it was connected before.

        Raises:
            DeviceBusy: another host has it meanwhile.
            DeviceError: the device went away.
        """
        self.request("device.replace", identity=lost.identity)
        if lost._held:
            self.reserve()

    @property
    def identity(self) -> str:
        """A random word that names this connection."""
        return self._connection.identity

    def release(self, session: Session, name: str) -> None:
        """End a session on the device; called by the session."""
        if session in self._sessions:
            self._sessions.remove(session)
        if self._closed or self.broken:
            return
        self.request("session.close", session=name)

    def _need_open(self) -> None:
        if self._closed:
            raise DeviceError(f"{self.name}: the connection is closed; connect again")

    def _gone(self, error: BaseException) -> DeviceError:
        self.broken = True
        return DeviceError(
            f"{self.name}: the device agent went away ({self.agent.end_reason() or error}); connect again"
        )

    def close(self) -> None:
        """End all sessions and the connection."""
        if self._closed:
            return
        self._closed = True
        for session in list(self._sessions):
            session.close()
        self._connection.close()
        self.agent.stop()


def enrolled(device: Device) -> Device:
    """A device whose agent this host started for itself: it trusts this host's bundles.

    Raises:
        UserError: this host's key cannot be used.
        DeviceError: the device went away.
    """
    try:
        device.enrol(host_key())
    except BaseException:
        device.close()
        raise
    return device
