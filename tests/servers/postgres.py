"""A PostgreSQL server for tests: Debian's, started by an ordinary user in a folder, on a Unix socket."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

import psycopg

PASSWORD = "a word + / of its own"
OWNER = "keeper"
_START_S = 60
_OPTIONS = "-c max_connections=40"
# Nobody has to get over a power cut.
_FAST = " -c fsync=off -c full_page_writes=off"


def binaries() -> Path:
    """The folder with initdb and pg_ctl, newest version first."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    if not found:
        raise RuntimeError("tests need a PostgreSQL server: run scripts/system-packages")
    return found[-1].parent


class Server:
    """A server with databases of the tests; ended with `remove`.

    Args:
        durable: what is kept is on the disk, as with the options that a server has by default.
        folder: of a server that was stopped, which is started again; None makes a new one.

    Attributes:
        folder: of the socket and of all data.
    """

    def __init__(self, durable: bool = False, folder: Path | None = None) -> None:
        self._options = _OPTIONS if durable else _OPTIONS + _FAST
        # Not below the folder of a test: its name is too long for a socket, and closed to another user.
        self.folder = folder or Path(tempfile.mkdtemp(prefix="edgetlm-pg-"))
        self._data = self.folder / "data"
        self._log = self.folder / "log"
        # PostgreSQL refuses to be started by root.
        self._user = pwd.getpwnam("nobody") if os.getuid() == 0 else None
        if not self._data.is_dir():
            self._make()
        self.start()

    def _make(self) -> None:
        if self._user is not None:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
        word = self.folder / "word"
        word.write_text(PASSWORD)
        word.chmod(0o644)
        self._run(
            "initdb", "-D", self._data, "-U", OWNER, "-A", "scram-sha-256", f"--pwfile={word}", "-E", "UTF8"
        )

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = f"{self._options} -c listen_addresses='' -c unix_socket_directories={self.folder}"
        self._run("pg_ctl", "-D", self._data, "-l", self._log, "-w", "-t", _START_S, "-o", options, "start")

    def stop(self, mode: str = "immediate") -> None:
        """End it; "immediate" is a crash, from which it recovers at the next start."""
        self._run("pg_ctl", "-D", self._data, "-m", mode, "-w", "stop")

    def kill(self) -> None:
        """Kill it and its processes, as a power cut does."""
        main = int((self._data / "postmaster.pid").read_text().split()[0])
        children = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(main)], capture_output=True, text=True, check=False
        ).stdout.split()
        for number in (main, *map(int, children)):
            # A connection may have ended meanwhile, and its process with it.
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        # As after a restart of the machine, of whose processes none is left.
        for path in (self._data / "postmaster.pid", self.folder / ".s.PGSQL.5432.lock"):
            path.unlink(missing_ok=True)

    def remove(self) -> None:
        """End it and remove its folder."""
        try:
            # It is not running where a test could not start it again.
            if (self._data / "postmaster.pid").exists():
                self.stop()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def database(self) -> str:
        """The name of a new, empty database."""
        name = f"t{secrets.token_hex(6)}"
        self.execute(f"CREATE DATABASE {name} STRATEGY file_copy")
        return name

    def url(self, database: str, user: str = OWNER, password: str = PASSWORD) -> str:
        """The URL of a database, for a user."""
        word = password.replace("+", "%2B").replace("/", "%2F").replace(" ", "%20")
        return f"postgresql+psycopg://{user}:{word}@/{database}?host={self.folder}"

    def execute(self, statements: str, database: str = "postgres", user: str = OWNER) -> None:
        """Execute statements outside of a transaction."""
        with psycopg.connect(
            host=str(self.folder), user=user, password=PASSWORD, dbname=database, autocommit=True
        ) as connection:
            for statement in filter(str.strip, statements.split(";")):
                connection.execute(statement)

    def _run(self, program: str, *arguments: object) -> None:
        command = [str(binaries() / program), *map(str, arguments)]
        if self._user is not None:
            ids = [f"--reuid={self._user.pw_uid}", f"--regid={self._user.pw_gid}", "--clear-groups"]
            command = ["setpriv", *ids, *command]
        # The server must not keep a pipe of the tests open.
        with (self.folder / "said").open("w+") as said:
            done = subprocess.run(
                command, stdout=said, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd="/", check=False
            )
            said.seek(0)
            text = said.read()
        if done.returncode:
            raise RuntimeError(f"{program} failed: {text[-2000:]}")
