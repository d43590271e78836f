"""Rows out of a database, asked for again while its server is away, with a bounded part of them in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import sqlalchemy as sql

from device_agent.contract.limits import LIMITS
from host.errors import EdgeError
from host.records.database import BATCH, Database, within_memory

_Result = TypeVar("_Result")


class RowReader:
    """Reads rows.

    Args:
        database: that has them.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def ask(self, question: Callable[[sql.Connection], _Result]) -> _Result:
        """What the database answers, asked again while the server is away.

        Raises:
            EdgeError: the database refuses, or its server stays away.
        """

        def read() -> _Result:
            with self._database.reading() as connection:
                return question(connection)

        return self._database.patiently(read)

    def batches(
        self, query: sql.Select[Any], number: sql.ColumnElement[int]
    ) -> Iterator[Sequence[sql.Row[Any]]]:
        """All rows of a query by their number; no lock is held between two batches.

        Args:
            query: of rows with an "id" and a "content".
            number: the column of the "id".

        Raises:
            EdgeError: see `rows`.
        """
        last = -1
        ordered = query.order_by(number).limit(BATCH)
        while rows := self.rows(ordered.where(number > last), LIMITS.records.batch_bytes):
            yield rows
            last = rows[-1].id

    def rows(self, query: sql.Select[Any], most_bytes: float = math.inf) -> list[sql.Row[Any]]:
        """The rows of a query, of a shared database in the order of their "id".

        Args:
            query: of rows with an "id" and a "content".
            most_bytes: of contents; no more than the first rows, with so many, are returned.

        Raises:
            EdgeError: one is larger than any record, or see `ask`.
        """
        shared = self._database.shared
        asked = within_memory(query, "content", most_bytes) if shared else query

        def read(connection: sql.Connection) -> list[sql.Row[Any]]:
            rows: list[sql.Row[Any]] = []
            size = 0
            for row in connection.execute(asked):
                rows.append(row)
                size += len(row.content) if isinstance(row.content, (str, bytes)) else 0
                if size > most_bytes:
                    break
            return rows

        found = self.ask(read)
        if shared and any(row.content is None for row in found):
            raise EdgeError(
                f"record store {self._database.name}: it holds a row that is larger than any record: "
                "take another with --records"
            )
        return found
