"""The daemon of a device: answers the host, owns the sessions, the uploads and the bundle store."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import socket
import sys
import threading
import time
from typing import Any, Callable, Dict, NamedTuple, Optional

from device_agent import power, wire
from device_agent.door import Door, refuse
from device_agent.files import Uploads, full_disk, place
from device_agent.home import Home, RunFolder, private_folder, try_lock, write_private
from device_agent.keeper import ModeKeeper
from device_agent.lease import Client, Lease
from device_agent.log import Log
from device_agent.machine import Machine
from device_agent.modes import PowerModes
from device_agent.payloads import Payloads
from device_agent.process import Terms, end_strays
from device_agent.service import RETIRED
from device_agent.sessions import Sessions
from device_agent.store import BundleStore
from device_agent.tickets import SharedToken, TicketBox
from device_agent.wire import AgentError, Header

# How often a parent that may end without a word is looked after.
_PARENT_S = 0.25
_CLAIM_S = 2.0
# Ending executors and restoring power modes.
_CLEARING_S = 30.0
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
    """One listener on the loopback interface, one thread a client that was let in.

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
        self._log = Log(settings.log, quiet=settings.home is None)
        self._run_folder = RunFolder(folder, self._recover)
        self._tickets = TicketBox(os.path.join(self._run_folder.path, "tickets"))
        self._admit = (token or self._tickets).admit
        self._lease = Lease()
        self._sessions = Sessions(self._run_folder.path, self._lease)
        modes = PowerModes(settings.system_root, self._run_folder.path, self._mode_lock)
        self._modes = ModeKeeper(modes, self._lease, self._run_folder.clear, self._log.write)
        self._stop = threading.Event()
        self._clients: Dict[int, socket.socket] = {}
        self._count = 0
        self._retired = False
        self._quiet_since_s = time.monotonic()
        self._door = Door(wire.hello_missing, self._greet, settings.port)
        self.port = self._door.port
        if settings.home is not None:
            self._register(settings.home)

    @property
    def _mode_lock(self) -> str:
        return os.path.join(self._settings.store_dir, "modes.lock")

    def _recover(self, left: str) -> bool:
        """Ends and restores what a killed agent left running and changed; False where that fails."""
        end_strays(left)
        try:
            PowerModes(self._settings.system_root, left, self._mode_lock).restore()
        except (AgentError, OSError, ValueError, KeyError) as error:
            self._log.write("%s; the next start tries again" % error)
            return False
        return True

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

    def run(self) -> int:
        """Serves until told to stop, by the host, by SIGTERM or by the parent's end.

        Returns:
            What the process ends with: 0, or another status that asks systemd for a new agent.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop())
        self._log.begin()
        self._log.write("serves on port %d" % self.port)
        self._door.open()
        try:
            while not self._over():
                self._sessions.poll(self._patience_s())
        finally:
            self._door.close()
            self._sessions.close_all()
            self._modes.close()
            self._log.write("ended")
            if self._settings.home is not None:
                with contextlib.suppress(OSError):
                    os.unlink(self._settings.home.record)
            if not self._modes.unrestored:
                self._run_folder.remove()
            self._held.close()
        return RETIRED if self._retired else 0

    def _over(self) -> bool:
        settings = self._settings
        orphaned = settings.parent_pid and os.getppid() != settings.parent_pid
        if self._idle_left_s() <= 0 and self._tickets.pending:
            self._quiet_since_s = time.monotonic()  # whoever has a ticket is on the way
        return bool(self._stop.is_set() or orphaned or self._idle_left_s() <= 0)

    def _idle_left_s(self) -> float:
        if not self._settings.idle_limit_s or self._clients:
            return math.inf
        return self._quiet_since_s + self._settings.idle_limit_s - time.monotonic()

    def _patience_s(self) -> Optional[float]:
        left_s = min(self._idle_left_s(), _PARENT_S if self._settings.parent_pid else math.inf)
        return None if left_s == math.inf else max(0.0, left_s)

    def stop(self) -> None:
        """Has `run` return soon."""
        self._stop.set()
        self._sessions.wake()

    def _greet(self, connection: socket.socket, data: bytes) -> None:
        """Lets a client in that has a secret, in a thread of its own."""
        try:
            hello = wire.check_hello(data, self._admit)
        except AgentError as error:
            self._log.write("nobody was let in: %s" % error)
            refuse(connection, [wire.frame(wire.error_reply(error))])
            return
        connection.setblocking(True)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._count += 1
        name = _printable(str(hello.get("client") or "another client"))
        client = Client(self._count, name, _printable(str(hello.get("identity") or "")))
        self._clients[client.number] = connection
        self._log.write("client %d: %s" % (client.number, client.name))
        try:
            threading.Thread(target=self._serve, args=(connection, client), daemon=True).start()
        except RuntimeError:  # there is no thread left
            del self._clients[client.number]
            raise

    def _serve(self, connection: socket.socket, client: Client) -> None:
        try:
            wire.send(connection, {"ok": True, "schema": wire.SCHEMA})
            while True:
                self._answer(connection, client, wire.receive_header(connection))
        except (OSError, wire.ClosedError):
            pass  # the client went away: its sessions end with it
        except AgentError as error:  # what came is no frame: nothing that follows can be one
            refuse(connection, [wire.frame(wire.error_reply(error))])
        finally:
            self._sessions.close_owned(client)
            self._modes.client_ended(client)
            self._lease.drop(client)
            connection.close()
            self._log.write("client %d is gone" % client.number)
            del self._clients[client.number]
            self._quiet_since_s = time.monotonic()
            self._sessions.wake()

    def _replace(self, header: Header, client: Client) -> None:
        """Ends the holder's connection, which was cut without this side having noticed."""
        holder, identity = self._lease.holder(), str(header["identity"])
        if holder is None or not identity or holder.client.identity != identity:
            return
        cut = self._clients.get(holder.client.number)
        if cut is not None:
            with contextlib.suppress(OSError):
                cut.shutdown(socket.SHUT_RDWR)  # its thread clears up
            self._lease.await_end(holder.client, _CLEARING_S)

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
            "sensor": lambda h, c: self._sensor(),
            "file.has": lambda h, c: {"has": self._uploads.has(str(h["sha256"]))},
            "session.open": self._open,
            "session.attach": lambda h, c: self._sessions.attach(str(h["session"])),
            "session.status": self._status,
            "session.pause": lambda h, c: self._sessions.pause(str(h["session"]), True),
            "session.resume": lambda h, c: self._sessions.pause(str(h["session"]), False),
            "session.close": self._close,
            "session.place": self._place,
            "bundle.install": self._install,
            "bundle.activate": lambda h, c: self._store.activate(str(h["name"]), str(h["version"])),
            "bundle.list": lambda h, c: {"bundles": self._store.list()},
            "bundle.rollback": lambda h, c: {"version": self._store.rollback(str(h["name"]))},
            "bundle.remove": lambda h, c: self._store.remove(str(h["name"])),
            "bundle.path": lambda h, c: {"path": self._store.active_path(str(h["name"]))},
            "modes.list": lambda h, c: self._modes.list(),
            "modes.set": lambda h, c: self._modes.set(c, str(h["mode"]), str(h.get("session") or "")),
            "modes.restore": lambda h, c: self._modes.restore(c),
            "device.holder": lambda h, c: self._lease.describe(),
            "device.hold": self._hold,
            "device.release": lambda h, c: self._lease.give_back(c),
            "device.replace": self._replace,
            "retire": self._retire,
            "shutdown": lambda h, c: self.stop(),
        }
        if command not in commands:
            raise AgentError("bad_request", "unknown command %s" % command)
        return commands[command](header, client) or {}

    def _retire(self, header: Header, client: Client) -> None:
        """Makes room for an agent of another version, unless somebody would lose work."""
        holder = self._lease.holder()
        if holder is not None:
            raise AgentError("busy", "the agent of another version is in use by %s" % holder.describe())
        self._retired = True
        self.stop()

    def _hold(self, header: Header, client: Client) -> None:
        self._lease.take(client, float(header.get("wait_s", 0.0)), self._present(client))

    def _present(self, client: Client) -> Callable[[], bool]:
        return lambda: not _hung_up(self._clients[client.number])

    def _sensor(self) -> Header:
        home = self._settings.home
        facts = power.board_facts(home.board if home is not None else None)
        return power.summary(power.choose(self._settings.system_root, facts))

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
        wait_s = float(header.get("wait_s", 0.0))
        return self._sessions.open(client, terms, wait_s, self._present(client))

    def _close(self, header: Header, client: Client) -> None:
        name = str(header["session"])
        self._sessions.close(name)
        self._modes.session_ended(name)

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


def _hung_up(connection: socket.socket) -> bool:
    try:
        return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


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
