"""The database of the records: its tables, their version, and how it is opened.

Version 1 had one table without a version; it is brought to version 2 where it is found. A database of any
other version, or of something else, is left as it is.
"""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sql
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import (
    ArgumentError,
    IntegrityError,
    NoSuchModuleError,
    OperationalError,
    SQLAlchemyError,
)

from device_agent.contract.limits import LIMITS
from device_agent.contract.text import printable
from host.errors import EdgeError
from host.records.record import Record, record_of

VERSION = 2
# Seconds that a writer waits for another process to finish.
BUSY_S = 60
# Seconds between two attempts at what SQLite does not wait for.
_AGAIN_S = 0.01
# Rows in memory at a time.
BATCH = 500
# MySQL's default text is too short for a record with its sentence.
_LONG_TEXT = sql.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
# How a connection begins a transaction in SQLite; "" for statements that stand outside of one.
_BEGIN = "edgetlm_begin"

METADATA = sql.MetaData()
META = sql.Table(
    "meta",
    METADATA,
    sql.Column("name", sql.String(64), primary_key=True),
    sql.Column("value", sql.String(64), nullable=False),
)
RECORDS = sql.Table(
    "records",
    METADATA,
    sql.Column("id", sql.Integer, primary_key=True),
    sql.Column("record_key", sql.String(64), nullable=False, unique=True),
    sql.Column("workload_hash", sql.String(64), nullable=False),
    sql.Column("profile_key", sql.String(64), nullable=False),
    sql.Column("candidate_key", sql.String(64), nullable=False),
    sql.Column("space_version", sql.Integer, nullable=False),
    # Null: it does not build or run.
    sql.Column("median_s", sql.Float(53)),
    sql.Column("made_at", sql.String(40), nullable=False),
    sql.Column("content", _LONG_TEXT, nullable=False),
    sql.Index("records_by_task", "workload_hash", "profile_key", "space_version", "median_s"),
    sql.Index("records_by_profile", "profile_key", "space_version", "id"),
)
WORKLOADS = sql.Table(
    "foreign_workloads",
    METADATA,
    sql.Column("workload_key", sql.String(64), primary_key=True),
    sql.Column("content", _LONG_TEXT, nullable=False),
)
FOREIGN = sql.Table(
    "foreign_records",
    METADATA,
    sql.Column("id", sql.Integer, primary_key=True),
    sql.Column("record_key", sql.String(64), nullable=False, unique=True),
    sql.Column("workload_hash", sql.String(64), nullable=False),
    sql.Column("workload_key", sql.ForeignKey("foreign_workloads.workload_key"), nullable=False),
    sql.Column("median_s", sql.Float(53)),
    sql.Column("content", _LONG_TEXT, nullable=False),
)
# Those of version 1 too.
_INDEXES = {"records_by_task", "records_by_profile", "by_task"}
# No virtual table, none made of a query, no generated column, no expression that is checked.
_PLAIN_TABLE = re.compile(r"(?is)CREATE TABLE (?!.*\b(?:AS|CHECK|GENERATED|WITHOUT)\b).*")
_COLUMNS_1 = {"id", "workload_hash", "profile_key", "candidate_key", "median_s", "made_at", "content"}


class Database:
    """An opened database of the present version.

    Args:
        url: SQLAlchemy URL; a path, or text that is no URL, makes a SQLite file.

    Raises:
        EdgeError: it cannot be opened, or is of another version.
    """

    def __init__(self, url: str | Path) -> None:
        self.name = store_name(url)
        try:
            self.engine = _engine(_parsed(url))
            self._prepare()
        except (SQLAlchemyError, UnicodeDecodeError, ImportError) as error:
            reason = _reason(error, url)
            raise EdgeError(f"record store {self.name} cannot be opened: {reason}") from error

    @contextmanager
    def reading(self) -> Iterator[sql.Connection]:
        """A connection to read with.

        Raises:
            EdgeError: the database refuses.
        """
        with self._errors(), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sql.Connection]:
        """A connection in one transaction: all that is written in the block is kept, or none of it.

        Raises:
            EdgeError: the database refuses.
        """
        with self._errors(), self._transaction() as connection:
            yield connection

    @contextmanager
    def _transaction(self) -> Iterator[sql.Connection]:
        with self.engine.connect() as connection:
            # A writer waits for another before it reads: else what it read is outdated, an error at once.
            writer = connection.execution_options(**{_BEGIN: "BEGIN IMMEDIATE"})
            with writer.begin():
                yield writer

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, UnicodeDecodeError) as error:
            raise EdgeError(f"record store {self.name}: {_reason(error, self.name)}") from error

    def _prepare(self) -> None:
        with self.engine.connect() as connection:
            if self.engine.dialect.name == "sqlite":
                _check_schema(connection, self.name)
            found = self._version(connection)
        if found == VERSION:
            return
        if self.engine.dialect.name == "sqlite":
            _write_ahead(self.engine)
        with self._transaction() as connection:
            # Another process may have been faster.
            found = self._version(connection)
            if found == 1:
                _migrate(connection, self.name)
            elif found == 0:
                METADATA.create_all(connection)
                connection.execute(META.insert(), {"name": "schema_version", "value": str(VERSION)})

    def _version(self, connection: sql.Connection) -> int:
        """The version of the tables; 0 where there are none.

        Raises:
            EdgeError: neither this version nor one before it.
        """
        inspector = sql.inspect(connection)
        tables = set(inspector.get_table_names())
        if not tables:
            return 0
        columns = {
            table: {column["name"] for column in inspector.get_columns(table)}
            for table in ("meta", "records")
            if table in tables
        }
        if "meta" not in tables and columns.get("records") == _COLUMNS_1:
            return 1
        version = "none"
        if columns.get("meta") == {"name", "value"}:
            query = sql.select(META.c.value).where(META.c.name == "schema_version")
            version = str(connection.execute(query).scalar_one_or_none())
        if version != str(VERSION):
            kind = f"of schema version {version}" if version.isdigit() else "not a record store"
            raise EdgeError(
                f"record store {self.name} is {kind}, this program reads version {VERSION}: "
                "take the program that wrote it, or another store with --records; nothing was changed"
            )
        return VERSION


def row_of(record: Record, content: str) -> dict[str, Any]:
    """The row of a record.

    Args:
        record: to be kept.
        content: the same as a line of JSON.
    """
    return {
        "record_key": record.record_key,
        "workload_hash": record.candidate.workload_hash,
        "profile_key": record.profile_key,
        "candidate_key": record.candidate_key,
        "space_version": record.candidate.space_version,
        "median_s": record.median_s,
        "made_at": record.made_at,
        "content": content,
    }


def insert_new(connection: sql.Connection, table: sql.Table, rows: list[dict[str, Any]], key: str) -> int:
    """Insert the rows whose key the table does not have yet; returns how many."""
    wanted = {row[key]: row for row in rows}
    query = sql.select(table.c[key]).where(table.c[key].in_(list(wanted)))
    for (known,) in connection.execute(query):
        wanted.pop(known)
    if wanted:
        connection.execute(table.insert(), list(wanted.values()))
    return len(wanted)


def store_name(url: str | Path) -> str:
    """What a store is called in messages and reports: the path of a file, or a URL without its secrets."""
    if not (isinstance(url, str) and "://" in url):
        return printable(url)
    try:
        parsed = _url(url)
    except ArgumentError:
        return f"{printable(url.partition('://')[0], 40)}://..."
    if parsed.get_backend_name() == "sqlite":
        return printable(parsed.database or "sqlite://")
    # Options may hold a password as well.
    return printable(parsed.set(query={}).render_as_string(hide_password=True))


def _parsed(url: str | Path) -> sql.URL:
    if isinstance(url, str) and "://" in url:
        return _url(url)
    path = Path(url)
    path.parent.mkdir(parents=True, exist_ok=True)
    return sql.URL.create("sqlite", database=str(path))


def _url(text: str) -> sql.URL:
    try:
        return sql.make_url(text)
    except ValueError as error:  # a port that is no number
        raise ArgumentError(str(error)) from error


def _engine(url: sql.URL) -> sql.Engine:
    if url.get_backend_name() != "sqlite":
        return sql.create_engine(url, pool_pre_ping=True)
    engine = sql.create_engine(url, connect_args={"timeout": BUSY_S})

    @sql.event.listens_for(engine, "connect")
    def _connected(connection: Any, _: Any) -> None:
        # The driver begins transactions too late for two writers; they are begun below.
        connection.isolation_level = None
        _distrust(connection)

    @sql.event.listens_for(engine, "begin")
    def _begin(connection: sql.Connection) -> None:
        statement = connection.get_execution_options().get(_BEGIN, "BEGIN")
        if statement:
            connection.exec_driver_sql(statement)

    return engine


def _distrust(connection: sqlite3.Connection) -> None:
    """Have SQLite take a file for what anybody may have written."""
    # Functions of a schema do nothing beyond computing, and damaged pages are noticed when they are read.
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.execute("PRAGMA cell_size_check=ON")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LIMITS.records.row_bytes)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.setlimit(sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 1)


def _check_schema(connection: sql.Connection, name: str) -> None:
    """Refuse a file whose tables are none, or in which a statement of ours would run somebody else's.

    Raises:
        EdgeError: what there is that no store has.
    """
    rows = connection.execute(sql.text("SELECT type, name, tbl_name, sql FROM sqlite_master"))
    for kind, called, table, text in rows:
        ours = table in METADATA.tables
        strange = (
            kind not in ("table", "index")
            or (ours and kind == "index" and text is not None and called not in _INDEXES)
            or (ours and kind == "table" and not _PLAIN_TABLE.fullmatch(str(text)))
        )
        if strange:
            raise EdgeError(
                f"record store {name} holds the {printable(kind, 20)} {printable(called, 60)}, as no store of"
                " ours does: take another with --records; nothing was changed"
            )


def _write_ahead(engine: sql.Engine) -> None:
    """Let readers go on while somebody writes: the mode is kept in the file.

    SQLite does not wait for another that changes the mode at this moment: it refuses at once.
    """
    until = time.monotonic() + BUSY_S
    with engine.connect() as connection:
        outside = connection.execution_options(**{_BEGIN: ""})
        while True:
            try:
                outside.exec_driver_sql("PRAGMA journal_mode=WAL")
                return
            except OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > until:
                    raise
                time.sleep(_AGAIN_S)


def _migrate(connection: sql.Connection, name: str) -> None:
    """Version 1 to 2: a key for every record, its space version, and room for failures."""
    connection.execute(sql.text("CREATE TEMPORARY TABLE records_before AS SELECT * FROM records"))
    connection.execute(sql.text("DROP TABLE records"))
    METADATA.create_all(connection)
    last = -1
    query = sql.text("SELECT id, content FROM records_before WHERE id > :last ORDER BY id LIMIT :count")
    while rows := connection.execute(query, {"last": last, "count": BATCH}).all():
        insert_new(
            connection, RECORDS, [_row_1(number, content, name) for number, content in rows], "record_key"
        )
        last = rows[-1][0]
    connection.execute(sql.text("DROP TABLE records_before"))
    connection.execute(META.insert(), {"name": "schema_version", "value": str(VERSION)})


def _row_1(number: int, content: Any, name: str) -> dict[str, Any]:
    line = content if isinstance(content, str) else json.dumps(content)
    try:
        return row_of(record_of(line), line)
    except ValueError as error:
        raise EdgeError(
            f"record store {name} of version 1 cannot be brought to version {VERSION}: row {number} is "
            f"damaged ({error}); repair it, or take another store with --records; nothing was changed"
        ) from error


def _reason(error: SQLAlchemyError | UnicodeDecodeError | ImportError, url: str | Path) -> str:
    """One line of what went wrong and what to do, without what is secret in the URL."""
    if isinstance(error, UnicodeDecodeError):
        # SQLite's own words quote what the file holds, and Python takes no words that are not UTF-8.
        return "the file is damaged: restore it, or take another with --records"
    if isinstance(error, ImportError):
        return f"{error}: install the package of this kind of database"
    if isinstance(error, ArgumentError) and not isinstance(error, NoSuchModuleError):
        return "it is no URL of a database: write it as SQLAlchemy does, postgresql+psycopg://me@host/records"
    if isinstance(error, IntegrityError):
        return "another process added the same records just now: run again"
    text = str(error).splitlines()[0]
    for sign, meaning in (
        ("disk is full", "no space left: free some and run again"),
        ("readonly database", "it may only be read: make it writable, or take another with --records"),
        ("database is locked", f"another process has kept it for {BUSY_S} s: run again when that is done"),
        ("unable to open", "its folder is missing or closed to you: take another with --records"),
        ("malformed", "the file is damaged: restore it, or take another with --records"),
        ("not a database", "it is no SQLite database: take another with --records"),
        ("too big", "it holds a row that is larger than any record: take another with --records"),
        ("decode", "it holds text that is none: take another with --records"),
    ):
        if sign in text:
            return meaning
    return printable(_without_secrets(text, url), 200)


def _without_secrets(text: str, url: str | Path) -> str:
    """A driver's message, in which it may repeat what it was given."""
    try:
        parsed = _url(str(url)) if "://" in str(url) else None
    except ArgumentError:
        return "it cannot be reached"
    secrets = [parsed.password or "", *map(str, parsed.query.values())] if parsed is not None else []
    for secret in filter(None, secrets):
        text = text.replace(secret, "***")
    return text
