"""The daemon of a device: answers the host, owns the sessions, the uploads and the bundle store."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import threading
from typing import Any, Callable, Dict, Optional

from device_agent import power, wire
from device_agent.executor import check_hello
from device_agent.files import Uploads, full_disk, place
from device_agent.machine import Machine
from device_agent.process import Terms
from device_agent.sessions import Sessions
from device_agent.store import BundleStore
from device_agent.wire import AgentError, Header

_HANDSHAKE_S = 10.0


class Daemon:
    """One listener on the loopback interface, one thread a client.

    Args:
        store_dir: folder of bundles, uploads and the sessions' files.
        token: secret that clients have to know.
        store: bundle store, by default one in `store_dir`.
        system_root: prefix of all system paths that are read.
        port: to listen on, 0 for any.
        parent_pid: end when this process has ended; 0 for none.
    """

    def __init__(
        self,
        store_dir: str,
        token: str,
        store: Optional[BundleStore] = None,
        system_root: str = "/",
        port: int = 0,
        parent_pid: int = 0,
    ) -> None:
        os.makedirs(store_dir, mode=0o700, exist_ok=True)
        self._token = token
        self._system_root = system_root
        self._machine = Machine(system_root)
        self._parent_pid = parent_pid
        self._uploads = Uploads(os.path.join(store_dir, "uploads"))
        self._store = store or BundleStore(store_dir)
        self._run_dir = _fresh_run_dir(store_dir)
        self._sessions = Sessions(self._run_dir)
        self._stop = threading.Event()
        self._clients = 0
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", port))
        self._listener.listen(16)
        self.port = int(self._listener.getsockname()[1])

    def run(self) -> None:
        """Serves until told to stop, by the host, by SIGTERM or by the parent's end."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop())
        threading.Thread(target=self._accept, name="accept", daemon=True).start()
        try:
            while not self._stop.is_set():
                self._sessions.poll()
                if self._parent_pid and os.getppid() != self._parent_pid:
                    break
        finally:
            self._listener.close()
            self._sessions.close_all()
            shutil.rmtree(self._run_dir, ignore_errors=True)

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

    def _serve(self, connection: socket.socket, client: int) -> None:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.settimeout(_HANDSHAKE_S)
            try:
                check_hello(wire.receive_header(connection), self._token)
            except AgentError as error:
                wire.send(connection, wire.error_reply(error))
                return
            connection.settimeout(None)
            wire.send(connection, {"ok": True, "schema": wire.SCHEMA})
            while True:
                self._answer(connection, client, wire.receive_header(connection))
        except (OSError, wire.ClosedError):
            pass  # the client went away: its sessions end with it
        finally:
            self._sessions.close_owned(client)
            connection.close()

    def _answer(self, connection: socket.socket, client: int, header: Header) -> None:
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

    def _dispatch(self, command: str, header: Header, client: int) -> Header:
        commands: Dict[str, Callable[[Header, int], Optional[Header]]] = {
            "describe": lambda h, c: self._machine.describe(),
            "state": lambda h, c: self._machine.state(),
            "sensor": lambda h, c: power.summary(power.choose(self._system_root)),
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
            "shutdown": lambda h, c: self.stop(),
        }
        if command not in commands:
            raise AgentError("bad_request", "unknown command %s" % command)
        return commands[command](header, client) or {}

    def _open(self, header: Header, client: int) -> Header:
        terms = Terms(
            engine=str(header["engine"]),
            threads=int(header["threads"]),
            time_limit_s=float(header["time_limit_s"]),
            memory_limit_bytes=self._machine.memory_limit_bytes(header.get("memory_limit_bytes")),
            python=str(header.get("python") or sys.executable),
            system_root=self._system_root,
        )
        if terms.threads < 1 or terms.time_limit_s <= 0 or terms.memory_limit_bytes < 0:
            raise AgentError("bad_request", "a session needs threads and a time limit: %s" % (terms,))
        return self._sessions.open(client, terms)

    def _status(self, header: Header, client: int) -> Header:
        return self._sessions.status(str(header["session"]), float(header.get("wait_s", 0.0)))

    def _place(self, header: Header, client: int) -> Header:
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

    def _install(self, header: Header, client: int) -> Header:
        files: Dict[str, Any] = dict(header["files"])
        return {"version": self._store.install(str(header["name"]), files, self._uploads.path)}


def _fresh_run_dir(store_dir: str) -> str:
    # Folders of daemons that were killed are left over; their process ids say so.
    base = os.path.join(store_dir, "run")
    os.makedirs(base, exist_ok=True)
    for entry in os.listdir(base):
        if not (entry.isdigit() and os.path.isdir("/proc/%s" % entry)):
            shutil.rmtree(os.path.join(base, entry), ignore_errors=True)
    path = os.path.join(base, str(os.getpid()))
    shutil.rmtree(path, ignore_errors=True)
    os.mkdir(path, 0o700)
    return path
