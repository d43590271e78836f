"""The revision of a database, and how its tables are made or brought up to date."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

import sqlalchemy as sql

from device_agent.contract.text import printable
from host.errors import EdgeError
from host.records.database.tables import INDEXES, METADATA, REVISION, REVISION_TABLE

if TYPE_CHECKING:
    from alembic.config import Config

# No virtual table, none made of a query, no generated column, no expression that is checked.
_PLAIN_TABLE = re.compile(r"(?is)CREATE TABLE (?!.*\b(?:AS|CHECK|GENERATED|WITHOUT)\b).*")
_COLUMNS_1 = {"id", "workload_hash", "profile_key", "candidate_key", "median_s", "made_at", "content"}
# Before alembic: where revision 2 kept its number.
_META = sql.table("meta", sql.column("name"), sql.column("value"))
_REVISIONS = sql.table(REVISION_TABLE, sql.column("version_num"))
_OURS = {*METADATA.tables, REVISION_TABLE, "meta"}
_REVISION = re.compile(r"(?!0000)[0-9]{4}")
# Of PostgreSQL, held while tables are made, so that two processes do not make them at once.
_LOCK_NUMBER = 0x65646765
# The first version has no room for programs that failed.
OLDEST = 2
# Alembic keeps the operation under way in its modules.
_ALEMBIC = threading.Lock()


def revision_of(connection: sql.Connection, name: str) -> str:
    """The revision of a database, "" where it has no tables.

    Args:
        connection: to it.
        name: of the store, for messages.

    Raises:
        EdgeError: it is none that this program can bring up to date, or of something else.
    """
    inspector = sql.inspect(connection)
    tables = set(inspector.get_table_names())
    if not tables:
        return ""
    columns = {
        table: {column["name"] for column in inspector.get_columns(table)}
        for table in ("meta", "records", REVISION_TABLE)
        if table in tables
    }
    found = "none"
    if columns.get(REVISION_TABLE) == {"version_num"}:
        found = _only(connection, sql.select(_REVISIONS.c.version_num))
        if found == REVISION:
            _check_columns(connection, inspector, name)
            return found
    elif columns.get("meta") == {"name", "value"} and "records" in tables:
        found = _only(connection, sql.select(_META.c.value).where(_META.c.name == "schema_version"))
        found = f"{int(found):04}" if found == "2" else "none"
    elif "meta" not in tables and columns.get("records") == _COLUMNS_1:
        found = "0001"
    if not _REVISION.fullmatch(found) or found > REVISION:
        kind = f"of schema version {int(found)}" if _REVISION.fullmatch(found) else "not a record store"
        raise EdgeError(
            f"record store {name} is {kind}, this program reads version {int(REVISION)}: "
            "take the program that wrote it, or another store with --records; nothing was changed"
        )
    return found


def _only(connection: sql.Connection, query: sql.Select[tuple[str]]) -> str:
    """The single value of a query, "none" without one."""
    rows = connection.execute(query.limit(2)).all()
    return str(rows[0][0])[:40] if len(rows) == 1 else "none"


def _check_columns(connection: sql.Connection, inspector: sql.Inspector, name: str) -> None:
    """Refuse tables of PostgreSQL whose columns hold more than ours; those of SQLite were looked at before.

    Raises:
        EdgeError: which table.
    """
    if connection.dialect.name == "sqlite":
        return
    found = inspector.get_multi_columns(filter_names=list(METADATA.tables))
    columns = {table: {column["name"]: column["type"] for column in one} for (_, table), one in found.items()}
    for table in METADATA.tables.values():
        there = columns.get(table.name, {})
        for column in table.columns:
            length = getattr(column.type, "length", None)
            kind = there.get(column.name)
            if kind is None or (length is not None and not 0 < (getattr(kind, "length", 0) or 0) <= length):
                raise EdgeError(
                    f"record store {name}: the column {column.name} of {table.name} is missing or not as"
                    " ours: take another store with --records"
                )


def check_file(connection: sql.Connection, name: str) -> None:
    """Refuse a SQLite file without our tables, or in which our statements would run statements of its author.

    Raises:
        EdgeError: what there is that no store has.
    """
    rows = connection.execute(sql.text("SELECT type, name, tbl_name, sql FROM sqlite_master"))
    for kind, called, table, text in rows:
        ours = table in _OURS
        strange = (
            kind not in ("table", "index")
            or (ours and kind == "index" and text is not None and called not in INDEXES)
            or (ours and kind == "table" and not _PLAIN_TABLE.fullmatch(str(text)))
        )
        if strange:
            raise EdgeError(
                f"record store {name} holds the {printable(kind, 20)} {printable(called, 60)}, as no store of"
                " ours does: take another with --records; nothing was changed"
            )


def upgrade(connection: sql.Connection, name: str) -> None:
    """Make the tables, or bring them to the newest revision; where they are, nothing happens.

    Args:
        connection: in a transaction, which the caller ends.
        name: of the store, for messages.

    Raises:
        EdgeError: the database is of something else, or a row is damaged.
    """
    from alembic import command

    _lock(connection)
    # Another process may have been faster.
    found = revision_of(connection, name)
    if found == REVISION:
        return
    config = _config(connection)
    with _ALEMBIC:
        if found and REVISION_TABLE not in sql.inspect(connection).get_table_names():
            command.stamp(config, found)
        try:
            command.upgrade(config, REVISION)
        except ValueError as error:
            raise EdgeError(
                f"record store {name} of version {int(found or 0)} cannot be brought to version "
                f"{int(REVISION)}: {printable(error, 200)}; repair it, or take another store with --records; "
                "nothing was changed"
            ) from error


def downgrade(connection: sql.Connection, version: int) -> None:
    """Bring tables of the newest revision back to an earlier one; all records stay.

    Args:
        connection: in a transaction, which the caller ends.
        version: from `OLDEST` to the present one.
    """
    from alembic import command

    _lock(connection)
    with _ALEMBIC:
        command.downgrade(_config(connection), f"{version:04}")


def _lock(connection: sql.Connection) -> None:
    """Have other processes wait that change the tables; SQLite's transactions do so by themselves."""
    if connection.dialect.name == "postgresql":
        connection.execute(sql.select(sql.func.pg_advisory_xact_lock(_LOCK_NUMBER)))


def _config(connection: sql.Connection) -> Config:
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", f"{__package__}:migrations")
    return config
