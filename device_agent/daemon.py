"""The daemon of a device: answers the host, owns the sessions, the uploads and the bundle store."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sys
import threading
import time
from typing import Any, Callable, Dict, NamedTuple, Optional

from device_agent import power, wire
from device_agent.files import Uploads, full_disk, place
from device_agent.home import Home, RunFolder, private_folder, try_lock, write_private
from device_agent.machine import Machine
from device_agent.payloads import Payloads
from device_agent.process import Terms
from device_agent.sessions import Client, Sessions, describe_holder
from device_agent.store import BundleStore
from device_agent.tickets import SharedToken, TicketBox
from device_agent.wire import AgentError, Header

_HANDSHAKE_S = 10.0
_CLAIM_S = 2.0
_NAME_LENGTH = 100


class Settings(NamedTuple):
    """How a daemon serves.

    Attributes:
        store_dir: folder of bundles, uploads and the sessions' files.
        home: the agent's folder, None for an agent that a host started for itself.
        system_root: prefix of all system paths that are read.
        port: to listen on, 0 for any.
        parent_pid: end when this process has ended; 0 for none.
        python: interpreter of executors.
        idle_limit_s: end after so long without clients, 0 for never.
        log: file for messages, None for stderr.
    """

    store_dir: str
    home: Optional[Home] = None
    system_root: str = "/"
    port: int = 0
    parent_pid: int = 0
    python: str = sys.executable
    idle_limit_s: float = 0.0
    log: Optional[str] = None


class Daemon:
    """One listener on the loopback interface, one thread a client.

    Args:
        settings: see there.
        token: the one secret of clients, None for tickets.
        store: bundle store, by default one in the settings' folder.

    Raises:
        AgentError: another agent serves this home, or its folder belongs to another user.
    """

    def __init__(
        self, settings: Settings, token: Optional[SharedToken] = None, store: Optional[BundleStore] = None
    ) -> None:
        folder = settings.store_dir
        self._settings = settings
        private_folder(folder)
        self._held = contextlib.ExitStack()
        if settings.home is not None:
            settings.home.make()
            _claim(settings.home, self._held)
        self._machine = Machine(settings.system_root)
        self._payloads = Payloads(settings.home, settings.python, settings.system_root)
        self._uploads = Uploads(os.path.join(folder, "uploads"))
        self._store = store or BundleStore(folder)
        self._run_folder = RunFolder(folder)
        self._admit = (token or TicketBox(os.path.join(self._run_folder.path, "tickets"))).admit
        self._sessions = Sessions(self._run_folder.path)
        self._stop = threading.Event()
        self._clients = 0
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", settings.port))
        self._listener.listen(16)
        self.port = int(self._listener.getsockname()[1])
        if settings.home is not None:
            self._register(settings.home)

    def _register(self, home: Home) -> None:
        record = {
            "pid": os.getpid(),
            "port": self.port,
            "started": time.strftime("%Y-%m-%d %H:%M:%S %Z"),
            "folder": self._run_folder.path,
            "code": os.path.dirname(os.path.realpath(__file__)),
            "schema": wire.SCHEMA,
        }
        write_private(home.record, record)

    def run(self) -> None:
        """Serves until told to stop, by the host, by SIGTERM or by the parent's end."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop())
        threading.Thread(target=self._accept, name="accept", daemon=True).start()
        try:
            while not self._stop.is_set():
                self._sessions.poll()
                if self._settings.parent_pid and os.getppid() != self._settings.parent_pid:
                    break
        finally:
            self._listener.close()
            self._sessions.close_all()
            if self._settings.home is not None:
                with contextlib.suppress(OSError):
                    os.unlink(self._settings.home.record)
            self._run_folder.remove()
            self._held.close()

    def stop(self) -> None:
        """Has `run` return soon."""
        self._stop.set()
        self._sessions.wake()

    def _accept(self) -> None:
        while not self._stop.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # closed by run
            self._clients += 1
            threading.Thread(target=self._serve, args=(connection, self._clients), daemon=True).start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        client = Client(number, "another client")
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.settimeout(_HANDSHAKE_S)
            try:
                hello = wire.receive_header(connection)
                wire.check_hello(hello, self._admit)
            except AgentError as error:
                wire.send(connection, wire.error_reply(error))
                return
            connection.settimeout(None)
            client = Client(number, _printable(str(hello.get("client") or "another client")))
            wire.send(connection, {"ok": True, "schema": wire.SCHEMA})
            while True:
                self._answer(connection, client, wire.receive_header(connection))
        except (OSError, wire.ClosedError):
            pass  # the client went away: its sessions end with it
        finally:
            self._sessions.close_owned(client)
            connection.close()

    def _answer(self, connection: socket.socket, client: Client, header: Header) -> None:
        command = str(header.get("command"))
        size = int(header.get("blob_bytes", 0))
        try:
            if command == "file.put":
                self._uploads.receive(connection, str(header.get("sha256")), size)
                fields: Header = {}
            else:
                wire.discard_blob(connection, size)
                fields = self._dispatch(command, header, client)
        except AgentError as error:
            wire.send(connection, wire.error_reply(error))
            return
        except OSError as error:
            wire.send(connection, wire.error_reply(full_disk(error, "the answer to %s" % command)))
            return
        except (KeyError, TypeError, ValueError) as error:
            wire.send(connection, wire.error_reply(AgentError("bad_request", "%s: %r" % (command, error))))
            return
        wire.send(connection, dict(fields, ok=True))

    def _dispatch(self, command: str, header: Header, client: Client) -> Header:
        commands: Dict[str, Callable[[Header, Client], Optional[Header]]] = {
            "describe": lambda h, c: self._machine.describe(),
            "state": lambda h, c: self._machine.state(),
            "sensor": lambda h, c: power.summary(power.choose(self._settings.system_root)),
            "file.has": lambda h, c: {"has": self._uploads.has(str(h["sha256"]))},
            "session.open": self._open,
            "session.attach": lambda h, c: self._sessions.attach(str(h["session"])),
            "session.status": self._status,
            "session.pause": lambda h, c: self._sessions.pause(str(h["session"]), True),
            "session.resume": lambda h, c: self._sessions.pause(str(h["session"]), False),
            "session.close": lambda h, c: self._sessions.close(str(h["session"])),
            "session.place": self._place,
            "bundle.install": self._install,
            "bundle.activate": lambda h, c: self._store.activate(str(h["name"]), str(h["version"])),
            "bundle.list": lambda h, c: {"bundles": self._store.list()},
            "bundle.rollback": lambda h, c: {"version": self._store.rollback(str(h["name"]))},
            "bundle.remove": lambda h, c: self._store.remove(str(h["name"])),
            "bundle.path": lambda h, c: {"path": self._store.active_path(str(h["name"]))},
            "device.holder": lambda h, c: self._holder(),
            "retire": self._retire,
            "shutdown": lambda h, c: self.stop(),
        }
        if command not in commands:
            raise AgentError("bad_request", "unknown command %s" % command)
        return commands[command](header, client) or {}

    def _holder(self) -> Header:
        holder = self._sessions.holder()
        if holder is None:
            return {"holder": None, "text": "nobody uses it"}
        _, name, seconds, sessions = holder
        fields = {"client": name, "seconds": seconds, "sessions": sessions}
        return {"holder": fields, "text": "in use by %s" % describe_holder(holder)}

    def _retire(self, header: Header, client: Client) -> None:
        """Makes room for an agent of another version, unless somebody would lose work."""
        holder = self._sessions.holder()
        if holder is not None:
            raise AgentError("busy", "the agent of another version is used by %s" % describe_holder(holder))
        self.stop()

    def _open(self, header: Header, client: Client) -> Header:
        engine, python = str(header["engine"]), header.get("python")
        command, site = self._payloads.command(engine, str(python) if python else None)
        terms = Terms(
            engine=engine,
            threads=int(header["threads"]),
            time_limit_s=float(header["time_limit_s"]),
            memory_limit_bytes=self._machine.memory_limit_bytes(header.get("memory_limit_bytes")),
            command=command,
            site=site,
            meter=self._payloads.meter(),
            system_root=self._settings.system_root,
        )
        if terms.threads < 1 or terms.time_limit_s <= 0 or terms.memory_limit_bytes < 0:
            raise AgentError("bad_request", "a session needs threads and a time limit: %s" % (terms,))
        return self._sessions.open(client, terms)

    def _status(self, header: Header, client: Client) -> Header:
        return self._sessions.status(str(header["session"]), float(header.get("wait_s", 0.0)))

    def _place(self, header: Header, client: Client) -> Header:
        """Gives a session uploaded files under their names, in a folder of its own."""
        session = self._sessions.get(str(header["session"]))
        folder = os.path.join(session.workdir, "files", os.path.basename(str(header["folder"])))
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        for name, digest in dict(header["files"]).items():
            if os.path.basename(name) != name:
                raise AgentError("bad_request", "%r is no file name" % name)
            place(self._uploads.path(digest), os.path.join(folder, name))
        return {"path": folder}

    def _install(self, header: Header, client: Client) -> Header:
        files: Dict[str, Any] = dict(header["files"])
        return {"version": self._store.install(str(header["name"]), files, self._uploads.path)}


def _printable(name: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in name[:_NAME_LENGTH])


def _claim(home: Home, held: contextlib.ExitStack) -> None:
    # Whoever asks whether an agent runs tries the lock too, for a moment.
    until = time.monotonic() + _CLAIM_S
    while True:
        attempt = contextlib.ExitStack()
        if attempt.enter_context(try_lock(home.lock)):
            held.push(attempt.pop_all().__exit__)
            return
        attempt.close()
        if time.monotonic() > until:
            raise AgentError(
                "busy", "an agent serves %s already; stop it with: device-agent stop" % home.root
            )
        time.sleep(0.02)
