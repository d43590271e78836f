"""The database of the records: its tables, their version, and how it is opened.

Version 1 had one table without a version; it is brought to version 2 where it is found. A database of any
other version, or of something else, is left as it is.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sql
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import IntegrityError, OperationalError, SQLAlchemyError

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
_COLUMNS_1 = {"id", "workload_hash", "profile_key", "candidate_key", "median_s", "made_at", "content"}


class Database:
    """An opened database of the present version.

    Args:
        url: SQLAlchemy URL; a path, or text that is no URL, makes a SQLite file.

    Raises:
        EdgeError: it cannot be opened, or is of another version.
    """

    def __init__(self, url: str | Path) -> None:
        self.name = str(url)
        try:
            parsed = _parsed(url)
            self.name = parsed.database or parsed.render_as_string()
            if parsed.get_backend_name() != "sqlite":
                self.name = parsed.render_as_string(hide_password=True)
            self.engine = _engine(parsed)
            self._prepare()
        except (SQLAlchemyError, ImportError) as error:
            raise EdgeError(f"record store {self.name} cannot be opened: {_reason(error)}") from error

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
        except SQLAlchemyError as error:
            raise EdgeError(f"record store {self.name}: {_reason(error)}") from error

    def _prepare(self) -> None:
        with self.engine.connect() as connection:
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


def _parsed(url: str | Path) -> sql.URL:
    if isinstance(url, str) and "://" in url:
        return sql.make_url(url)
    path = Path(url)
    path.parent.mkdir(parents=True, exist_ok=True)
    return sql.URL.create("sqlite", database=str(path))


def _engine(url: sql.URL) -> sql.Engine:
    if url.get_backend_name() != "sqlite":
        return sql.create_engine(url, pool_pre_ping=True)
    engine = sql.create_engine(url, connect_args={"timeout": BUSY_S})

    @sql.event.listens_for(engine, "connect")
    def _connected(connection: Any, _: Any) -> None:
        # The driver begins transactions too late for two writers; they are begun below.
        connection.isolation_level = None

    @sql.event.listens_for(engine, "begin")
    def _begin(connection: sql.Connection) -> None:
        statement = connection.get_execution_options().get(_BEGIN, "BEGIN")
        if statement:
            connection.exec_driver_sql(statement)

    return engine


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


def _reason(error: SQLAlchemyError | ImportError) -> str:
    """One line of what went wrong and what to do."""
    if isinstance(error, ImportError):
        return f"{error}: install the package of this kind of database"
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
    ):
        if sign in text:
            return meaning
    return text
