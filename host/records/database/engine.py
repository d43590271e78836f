"""How a database is reached: SQLite's file with its distrust, PostgreSQL's server with its bounds of time."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

import sqlalchemy as sql
from sqlalchemy.exc import OperationalError

from device_agent.contract.limits import LIMITS
from host.errors import UserError
from host.files import writing
from host.records.database.problems import BUSY_S, POSTGRESQL, store_name, url_of

# How a connection begins a transaction in SQLite; "" for statements that stand outside of one.
BEGIN = "edgetlm_begin"
# Seconds between two attempts at what SQLite does not wait for.
_AGAIN_S = 0.01
# How long a server may take for a statement: to read all of the largest store takes minutes.
ANSWER_S = 600.0
# How often the driver sees whether Ctrl-C was pressed, as it does by itself.
_LOOK_S = 0.1
# A server that is off, or a network that is cut, is noticed within a minute; a URL's own options go first.
_POSTGRESQL_OPTIONS = {
    "application_name": "edgetlm",
    "client_encoding": "utf8",
    "connect_timeout": 10,
    "keepalives_idle": 20,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 45_000,
    "options": f"-c lock_timeout={BUSY_S}s -c idle_in_transaction_session_timeout={5 * BUSY_S}s",
}


def parsed(url: str | Path) -> sql.URL:
    """The URL of a database; a path, or text that is no URL, is SQLite's file, whose folder is made.

    Raises:
        UserError: it is neither of SQLite nor of PostgreSQL, or its folder cannot be made.
        DeviceFull: no space left for its folder.
        ArgumentError: it is no URL.
    """
    if isinstance(url, str) and "://" in url:
        found = url_of(url)
        # Raises for a kind that SQLAlchemy does not know either.
        kind = found.get_dialect().name
        if kind not in ("sqlite", "postgresql"):
            raise UserError(
                f"record store {store_name(url)}: records are kept in SQLite or PostgreSQL; name a file, or "
                f"write {POSTGRESQL}"
            )
        return found
    path = Path(url)
    try:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"record store {store_name(url)}: {error.strerror or error}; name a file that can be written "
            "with --records"
        ) from error
    return sql.URL.create("sqlite", database=str(path))


def engine_of(url: sql.URL) -> sql.Engine:
    """SQLAlchemy's engine of a database.

    Raises:
        ImportError: the driver of PostgreSQL is not installed.
    """
    if url.get_backend_name() != "sqlite":
        options = {name: value for name, value in _POSTGRESQL_OPTIONS.items() if name not in url.query}
        shared = sql.create_engine(url, pool_pre_ping=True, connect_args=options)
        sql.event.listen(shared, "do_connect", _connected_within_bounds)
        return shared
    engine = sql.create_engine(url, connect_args={"timeout": BUSY_S})

    @sql.event.listens_for(engine, "connect")
    def _connected(connection: Any, _: Any) -> None:
        # The driver begins transactions too late for two writers; they are begun below.
        connection.isolation_level = None
        _distrust(connection)

    @sql.event.listens_for(engine, "begin")
    def _begin(connection: sql.Connection) -> None:
        statement = connection.get_execution_options().get(BEGIN, "BEGIN")
        if statement:
            connection.exec_driver_sql(statement)

    return engine


def _connected_within_bounds(_: Any, record: Any, arguments: Any, named: Any) -> Any:
    """A connection of PostgreSQL that is lost where the server, or what is between, says nothing for long.

    The options of a connection notice a cut network. A server that stands still, or a proxy before it,
    still acknowledges what it is sent.
    """
    import psycopg

    class Bounded(psycopg.Connection[Any]):
        def wait(self, gen: Any, interval: float = _LOOK_S, timeout: float | None = None) -> Any:
            try:
                return super().wait(gen, interval, timeout or ANSWER_S)
            except psycopg.errors._WaitTimeout as error:
                if timeout is not None:
                    raise
                self.pgconn.finish()
                raise psycopg.OperationalError(f"timeout expired: no answer for {ANSWER_S:g} s") from error

    return Bounded.connect(*arguments, **named)


def _distrust(connection: sqlite3.Connection) -> None:
    """Have SQLite treat a file as one that is not trusted."""
    # Functions of a schema do nothing beyond computing, and damaged pages are noticed when they are read.
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.execute("PRAGMA cell_size_check=ON")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LIMITS.records.row_bytes)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.setlimit(sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 1)


def write_ahead(engine: sql.Engine) -> None:
    """Let SQLite's readers continue while another process writes (WAL); the mode is kept in the file.

    SQLite does not wait for another that changes the mode at this moment: it refuses at once.
    """
    until = time.monotonic() + BUSY_S
    with engine.connect() as connection:
        outside = connection.execution_options(**{BEGIN: ""})
        while True:
            try:
                outside.exec_driver_sql("PRAGMA journal_mode=WAL")
                return
            except OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > until:
                    raise
                time.sleep(_AGAIN_S)
