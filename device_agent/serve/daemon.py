"""The daemon of a device: answers the host, owns the sessions, the uploads and the bundle store."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import socket
import sys
import threading
import time
from typing import Callable, Dict, NamedTuple, Optional

from device_agent import power
from device_agent.board.machine import Machine
from device_agent.contract.fields import Fields
from device_agent.contract.limits import LIMITS
from device_agent.contract.text import printable
from device_agent.errors import AgentError, ClosedError
from device_agent.power.modes import PowerModes
from device_agent.serve import clients
from device_agent.serve.client_modes import ClientPowerModes
from device_agent.serve.control import CODE, RETIRED
from device_agent.serve.executor_process import SessionOptions, kill_leftovers
from device_agent.serve.key_commands import KeyCommand, KeyCommands
from device_agent.serve.log import Log
from device_agent.serve.payloads import Payloads
from device_agent.serve.reservation import Client, DeviceReservation
from device_agent.serve.session_commands import SessionCommands
from device_agent.serve.sessions import Sessions
from device_agent.serve.tickets import TicketStore
from device_agent.store.agent_folder import AgentFolder, RunFolder
from device_agent.store.bundles import BundleStore
from device_agent.store.private_files import private_folder, try_lock, write_private
from device_agent.store.uploads import Uploads, full_disk
from device_agent.wire import frames, listener
from device_agent.wire.frames import Header
from device_agent.wire.listener import Listener, refuse
from device_agent.wire.shared_token import SharedToken

# How often a parent that may end without a word is looked after.
_PARENT_S = 0.25
_LOCK_S = 2.0
# Ending executors and restoring power modes.
_CLEARING_S = 30.0
# No machine has as much; what is larger is an error.
_MAX_MEMORY_BYTES = 1 << 50
_LIMITS = LIMITS.wire
Command = Callable[[Fields, Client], Optional[Header]]


def _without_client(command: KeyCommand) -> Command:
    return lambda fields, client: command(fields)


class Settings(NamedTuple):
    """The settings of a daemon.

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
    home: Optional[AgentFolder] = None
    system_root: str = "/"
    port: int = 0
    parent_pid: int = 0
    python: str = sys.executable
    idle_limit_s: float = 0.0
    log: Optional[str] = None


class Daemon:
    """One listener on the loopback interface, one thread for each admitted client.

    Args:
        settings: see there.
        token: the shared secret of all clients, None for tickets.
        store: bundle store, by default one in the settings' folder.

    Raises:
        AgentError: another agent serves this folder, or the folder belongs to another user.
    """

    def __init__(
        self, settings: Settings, token: Optional[SharedToken] = None, store: Optional[BundleStore] = None
    ) -> None:
        folder = settings.store_dir
        self._settings = settings
        private_folder(folder)
        self._locks = contextlib.ExitStack()
        if settings.home is not None:
            settings.home.make()
            _lock_folder(settings.home, self._locks)
        self._machine = Machine(settings.system_root)
        self._payloads = Payloads(settings.home, settings.python, settings.system_root)
        self._uploads = Uploads(os.path.join(folder, "uploads"))
        self._store = store or BundleStore(folder)
        self._log = Log(settings.log, quiet=settings.home is None)
        self._run_folder = RunFolder(folder, self._recover)
        self._tickets = TicketStore(os.path.join(self._run_folder.path, "tickets"))
        self._admit = (token or self._tickets).admit
        self._reservation = DeviceReservation()
        self._sessions = Sessions(self._run_folder.path, self._reservation)
        modes = PowerModes(settings.system_root, self._run_folder.path, self._mode_lock)
        self._modes = ClientPowerModes(modes, self._reservation, self._run_folder.clear, self._log.write)
        self._stop = threading.Event()
        self._clients: Dict[int, socket.socket] = {}
        self._max_clients = clients.max_clients()
        self._count = 0
        self._retired = False
        self._failed = False
        self._quiet_since_s = time.monotonic()
        self._commands = self._all_commands()
        self._listener = Listener(
            frames.hello_missing, self._admit_client, settings.port, self._log.write, self._listener_failed
        )
        self.port = self._listener.port
        if settings.home is not None:
            self._register(settings.home)

    @property
    def _mode_lock(self) -> str:
        return os.path.join(self._settings.store_dir, "modes.lock")

    def _recover(self, left: str) -> bool:
        """Ends processes and restores modes that a killed agent left behind; False if that fails."""
        kill_leftovers(left)
        try:
            PowerModes(self._settings.system_root, left, self._mode_lock).restore()
        except (AgentError, OSError, ValueError, KeyError) as error:
            self._log.write("%s; the next start tries again" % error)
            return False
        return True

    def _register(self, home: AgentFolder) -> None:
        record = {
            "pid": os.getpid(),
            "port": self.port,
            "started": time.strftime("%Y-%m-%d %H:%M:%S %Z"),
            "folder": self._run_folder.path,
            "code": CODE,
            "schema": frames.SCHEMA,
        }
        write_private(home.record, record)

    def run(self) -> int:
        """Serves until the host or SIGTERM stops the agent, or its parent ends.

        Returns:
            The exit code of the process: 0, or a code for which systemd starts a new agent; 1 if the listener
                failed.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop())
        self._log.begin()
        self._log.write("serves on port %d" % self.port)
        self._listener.open()
        try:
            while not self._must_end():
                self._sessions.poll(self._poll_timeout_s())
        finally:
            self._listener.close()
            self._sessions.close_all()
            self._modes.close()
            self._log.write("ended")
            if self._settings.home is not None:
                with contextlib.suppress(OSError):
                    os.unlink(self._settings.home.record)
            if not self._modes.unrestored:
                self._run_folder.remove()
            self._locks.close()
        if self._failed:
            return 1
        return RETIRED if self._retired else 0

    def _must_end(self) -> bool:
        settings = self._settings
        orphaned = settings.parent_pid and os.getppid() != settings.parent_pid
        if self._idle_left_s() <= 0 and self._tickets.pending:
            self._quiet_since_s = time.monotonic()  # whoever has a ticket is on the way
        return bool(self._stop.is_set() or orphaned or self._idle_left_s() <= 0)

    def _idle_left_s(self) -> float:
        if not self._settings.idle_limit_s or self._clients:
            return math.inf
        return self._quiet_since_s + self._settings.idle_limit_s - time.monotonic()

    def _poll_timeout_s(self) -> Optional[float]:
        left_s = min(self._idle_left_s(), _PARENT_S if self._settings.parent_pid else math.inf)
        return None if left_s == math.inf else max(0.0, left_s)

    def stop(self) -> None:
        """Makes `run` return soon; called from another thread or a signal handler."""
        self._stop.set()
        self._sessions.wake()

    def _listener_failed(self, reason: str) -> None:
        """Ends an agent whose listener has failed: no client could reach it."""
        self._failed = True
        if self._settings.home is None:  # its log is quiet, and its host reads stderr
            listener.write_stderr(reason)
        self._log.write("%s; the agent ends" % reason)
        self.stop()

    def _admit_client(self, connection: socket.socket, data: bytes) -> None:
        """Admits a client with a valid secret and serves it in a new thread."""
        try:
            hello = frames.check_hello(data, self._admit)
            if len(self._clients) >= self._max_clients:
                text = "the agent serves %d clients, as many as it can; close some or try again later"
                raise AgentError("busy", text % self._max_clients)
        except AgentError as error:
            self._log.write("nobody was let in: %s" % error)
            refuse(connection, [frames.frame(frames.error_reply(error))])
            return
        listener.configure_connection(connection)
        self._count += 1
        name = printable(hello.get("client") or "another client", _LIMITS.name_characters)
        identity = printable(hello.get("identity") or "", _LIMITS.name_characters)
        client = Client(self._count, name, identity)
        self._clients[client.number] = connection
        self._log.write("client %d: %s" % (client.number, client.name))
        try:
            threading.Thread(target=self._serve, args=(connection, client), daemon=True).start()
        except RuntimeError:  # there is no thread left
            del self._clients[client.number]
            raise

    def _serve(self, connection: socket.socket, client: Client) -> None:
        try:
            frames.send(connection, {"ok": True, "schema": frames.SCHEMA})
            while True:
                self._answer(connection, client, frames.receive_header(connection))
        except (OSError, ClosedError):
            pass  # the client went away: its sessions end with it
        except AgentError as error:  # what came is no frame: nothing that follows can be one
            refuse(connection, [frames.frame(frames.error_reply(error))])
        finally:
            # Each of these has to happen, whatever becomes of the others.
            with contextlib.ExitStack() as stack:
                stack.callback(self._sessions.wake)
                stack.callback(self._remove_client, connection, client)
                stack.callback(self._reservation.release_all, client)
                stack.callback(self._modes.client_ended, client)
                stack.callback(self._sessions.close_owned, client)

    def _remove_client(self, connection: socket.socket, client: Client) -> None:
        connection.close()
        self._log.write("client %d is gone" % client.number)
        del self._clients[client.number]
        self._quiet_since_s = time.monotonic()

    def _replace(self, fields: Fields, client: Client) -> None:
        """Ends the holder's connection, whose loss this side has not noticed."""
        holder, identity = self._reservation.holder(), fields.text("identity", _LIMITS.name_characters)
        if holder is None or not identity or holder.client.identity != identity:
            return
        cut = self._clients.get(holder.client.number)
        if cut is not None:
            with contextlib.suppress(OSError):
                cut.shutdown(socket.SHUT_RDWR)  # its thread clears up
            self._reservation.await_end(holder.client, _CLEARING_S)

    def _answer(self, connection: socket.socket, client: Client, header: Header) -> None:
        command = frames.fields_of(header).name("command")
        # Only an upload has bytes; others that announce some end the connection, as too large a file does.
        size = frames.blob_bytes(header, _LIMITS.file_bytes if command == "file.put" else 0)
        try:
            fields = frames.fields_of(header, command)
            if command == "file.put":
                self._uploads.receive(connection, fields.text("sha256", standard=""), size)
                reply: Header = {}
            else:
                reply = self._dispatch(command, fields, client)
        except AgentError as error:
            reply = frames.error_reply(error)
        except ClosedError:
            raise
        except OSError as error:
            reply = frames.error_reply(full_disk(error, "the answer to %s" % command))
        except Exception as error:  # noqa: BLE001 - an error of ours in one request is no end of the others
            self._log.write("%s of client %d failed: %r" % (command, client.number, error))
            text = "%s failed on the device: %r; report this, with the agent's log" % (command, error)
            reply = frames.error_reply(AgentError("internal", text))
        else:
            reply = dict(reply, ok=True)
        frames.send(connection, reply)

    def _dispatch(self, command: str, fields: Fields, client: Client) -> Header:
        if command not in self._commands:
            raise AgentError("bad_request", "unknown command %s" % printable(command))
        return self._commands[command](fields, client) or {}

    def _all_commands(self) -> Dict[str, Command]:
        """The commands of clients; each reads its fields through `Fields`."""
        return {
            "describe": lambda f, c: self._machine.describe(),
            "state": lambda f, c: self._machine.state(),
            "sensor": lambda f, c: self._sensor(),
            "file.has": lambda f, c: {"has": self._uploads.has(f.text("sha256"))},
            "bundle.install": self._install,
            "bundle.activate": lambda f, c: self._store.activate(f.name("name"), f.name("version")),
            "bundle.list": lambda f, c: {"bundles": self._store.list()},
            "bundle.rollback": lambda f, c: {"version": self._store.rollback(f.name("name"))},
            "bundle.remove": lambda f, c: self._store.remove(f.name("name")),
            "bundle.path": lambda f, c: {"path": self._store.active_path(f.name("name"))},
            "modes.list": lambda f, c: self._modes.list(),
            "modes.set": lambda f, c: self._modes.set(c, f.name("mode"), f.text("session", standard="")),
            "modes.restore": lambda f, c: self._modes.restore(c),
            "device.holder": lambda f, c: self._reservation.describe(),
            "device.hold": self._reserve,
            "device.release": lambda f, c: self._reservation.release(c),
            "device.replace": self._replace,
            **{
                name: _without_client(command)
                for name, command in KeyCommands(self._store.trust).all().items()
            },
            **SessionCommands(
                self._sessions, self._session_options, self._uploads, self._modes, self._connection_check
            ).all(),
            "retire": self._retire,
            "shutdown": lambda f, c: self.stop(),
        }

    def _retire(self, fields: Fields, client: Client) -> None:
        """Ends this agent for one of another version, unless a client uses the device."""
        holder = self._reservation.holder()
        if holder is not None:
            raise AgentError("busy", "the agent of another version is in use by %s" % holder.describe())
        self._retired = True
        self.stop()

    def _reserve(self, fields: Fields, client: Client) -> None:
        self._reservation.acquire(client, fields.seconds("wait_s", 0.0), self._connection_check(client))

    def _connection_check(self, client: Client) -> Callable[[], bool]:
        return lambda: not clients.hung_up(self._clients[client.number])

    def _sensor(self) -> Header:
        home = self._settings.home
        facts = power.board_facts(home.board if home is not None else None)
        return power.summary(power.choose(self._settings.system_root, facts))

    def _session_options(self, fields: Fields) -> SessionOptions:
        """The options of a session, from the fields of `session.open`.

        Raises:
            AgentError: nothing serves the engine, or a field is wrong.
        """
        engine = fields.name("engine")
        command, site = self._payloads.command(engine, fields.text("python", standard="") or None)
        wanted = None
        if fields.has("memory_limit_bytes"):
            wanted = fields.whole("memory_limit_bytes", 0, _MAX_MEMORY_BYTES)
        options = SessionOptions(
            engine=engine,
            threads=fields.whole("threads", 1, _LIMITS.threads),
            time_limit_s=fields.seconds("time_limit_s"),
            memory_limit_bytes=self._machine.memory_limit_bytes(wanted),
            command=command,
            site=site,
            meter=self._payloads.meter(),
            keys=self._store.trust.path,
            system_root=self._settings.system_root,
        )
        if options.time_limit_s <= 0:
            raise AgentError("bad_request", "session.open: a session needs a time limit")
        return options

    def _install(self, fields: Fields, client: Client) -> Header:
        files = fields.text_map("files", _LIMITS.files)
        return {"version": self._store.install(fields.name("name"), files, self._uploads.path)}


def _lock_folder(home: AgentFolder, locks: contextlib.ExitStack) -> None:
    # Whoever asks whether an agent runs tries the lock too, for a moment.
    until = time.monotonic() + _LOCK_S
    while True:
        attempt = contextlib.ExitStack()
        if attempt.enter_context(try_lock(home.lock)):
            locks.push(attempt.pop_all().__exit__)
            return
        attempt.close()
        if time.monotonic() > until:
            raise AgentError(
                "busy", "an agent serves %s already; stop it with: device-agent stop" % home.root
            )
        time.sleep(0.02)
