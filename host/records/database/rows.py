"""Rows of the tables: how they are made, added once, and read no further than memory allows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sql
from sqlalchemy.dialects import sqlite

from device_agent.contract.limits import LIMITS
from host.records.record import Record

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

# Rows in memory at a time.
BATCH = 500
_CLOCKS = {
    "sqlite": "(julianday('now') - 2440587.5) * 86400.0",
    "postgresql": "CAST(extract(epoch FROM clock_timestamp()) AS double precision)",
}


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
        "rule": record.candidate.rule,
        "measured_in": record.origin.measured_in or "",
        "epoch": record.origin.epoch or "",
    }


def inserting(connection: sql.Connection, table: sql.Table) -> postgresql.Insert | sqlite.Insert:
    """An insertion with a clause for a row whose key is there already."""
    if connection.dialect.name == "postgresql":
        # It imports the drivers of a database that few have, and asyncio.
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)
    return sqlite.insert(table)


def insert_new(connection: sql.Connection, table: sql.Table, rows: Sequence[dict[str, Any]], key: str) -> int:
    """Insert the rows whose key the table does not have yet; returns how many.

    Another process may add the same rows at the same moment: each is there once.
    """
    if not rows:
        return 0
    statement = inserting(connection, table).on_conflict_do_nothing(index_elements=[key])
    if connection.dialect.name == "postgresql":
        # A statement for each row, all sent at once: one with 6,000 parameters takes both ends longer.
        done = connection.execute(statement, list(rows), execution_options={"preserve_rowcount": True})
        return int(done.rowcount)
    # What is returned is counted: SQLite's driver does not add up what several statements have changed.
    added = connection.execute(statement.returning(table.c[key]), list(rows))
    return len(added.all())


def database_clock(connection: sql.Connection) -> sql.ColumnElement[float]:
    """Seconds since 1970 by the clock of the database, which all its hosts share."""
    return sql.literal_column(_CLOCKS[connection.dialect.name], sql.Float(53))


def within_memory(query: sql.Select[Any], text: str, most_bytes: float) -> sql.Select[Any]:
    """The first rows of a query, as many as have so many bytes; for PostgreSQL, whose rows have no bound.

    A text that is larger than any record is null: the server does not send it. SQLite refuses such a row
    itself (`SQLITE_LIMIT_LENGTH`), and gives the rows one by one.

    Args:
        query: of rows with an "id", in the order of these.
        text: name of the column that is large.
        most_bytes: of these texts; infinite for no bound.
    """
    rows = query.subquery()
    size = sql.func.octet_length(rows.c[text])
    # The size is known without the text: nothing is read that is not sent.
    total = sql.func.sum(size).over(order_by=rows.c.id)
    sized = sql.select(rows, size.label("text_bytes"), total.label("total_bytes")).subquery()
    bounded = sql.case((sized.c.text_bytes <= LIMITS.records.row_bytes, sized.c[text])).label(text)
    columns = [bounded if column.name == text else sized.c[column.name] for column in rows.c]
    found = sql.select(*columns).order_by(sized.c.id)
    if most_bytes == float("inf"):
        return found
    return found.where(sized.c.total_bytes - sized.c.text_bytes <= int(most_bytes))
