"""The epochs of boards: what a board was, how long its reference programs took, and whether that changed.

An epoch begins when reference times of a board are kept. It ends when the board's times have drifted, which
is one row more: its records are left out from then on (`host.records.store`), and the board is taken out
until a new epoch begins. Rows are added and never changed, each in one transaction.

Every time is of the clock of the database.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sql

from device_agent.contract.text import printable
from host.errors import EdgeError
from host.model.reference_times import ReferenceTimes, reference_times
from host.records.database import (
    DRIFTS,
    EPOCH_BYTES,
    EPOCHS,
    RECORDS,
    PatientTables,
    database_clock,
    insert_new,
)
from host.records.place import is_there

_NAME_CHARACTERS, _REASON_CHARACTERS = 200, 400
# The most rows that are read of a database that other hosts fill.
_MOST_ROWS = 4096


class EpochDamaged(EdgeError):
    """What is kept of an epoch cannot be read; a new one takes its place."""


@dataclass(frozen=True)
class Drift:
    """Why an epoch ended.

    Attributes:
        reason: what was measured and what had changed, for people.
        found_by: user and host.
        found_at: seconds since 1970.
    """

    reason: str
    found_by: str
    found_at: float


@dataclass(frozen=True)
class Epoch:
    """A time in which a board's programs take as long as at its beginning.

    Attributes:
        key: names it in records.
        board: what every host calls the board.
        name: what the host called it that began the epoch.
        began_at: seconds since 1970.
        times: of the reference programs at its beginning.
        drift: why it ended; None while it lasts.
    """

    key: str
    board: str
    name: str
    began_at: float
    times: ReferenceTimes
    drift: Drift | None = None


class BoardEpochs(PatientTables):
    """The epochs in a database of records."""

    def present(self, board: str) -> Epoch | None:
        """The last epoch of a board, which may have ended; None where it never had one.

        Raises:
            EpochDamaged: what is kept of it cannot be read.
        """
        query = _joined().where(EPOCHS.c.board == _name(board)).order_by(EPOCHS.c.id.desc()).limit(1)

        def ask() -> Any:
            with self._database.reading() as connection:
                return connection.execute(query).one_or_none()

        row = self._database.patiently(ask)
        return None if row is None else self._epoch(row)

    def boards(self) -> dict[str, str]:
        """What every host calls the board of each present epoch, by the epoch's key."""
        later = EPOCHS.alias()
        newest = sql.select(sql.func.max(later.c.id)).group_by(later.c.board)
        query = sql.select(EPOCHS.c.epoch, EPOCHS.c.board).where(EPOCHS.c.id.in_(newest)).limit(_MOST_ROWS)

        def ask() -> dict[str, str]:
            with self._database.reading() as connection:
                return {row.epoch: printable(row.board) for row in connection.execute(query)}

        return self._database.patiently(ask)

    def begin(self, board: str, name: str, times: ReferenceTimes) -> Epoch:
        """Begin an epoch of a board, in place of the one that it has.

        Args:
            board: what every host calls it.
            name: what this host calls it.
            times: of its reference programs, as they are now.
        """
        row = {
            "epoch": secrets.token_hex(16),
            "board": _name(board),
            "name": _name(name),
            "content": times.to_text(),
        }
        if len(row["content"]) > EPOCH_BYTES:
            raise EdgeError(f"{name}: its reference times are too long to be kept; measure again")

        def begin() -> None:
            with self._database.writing() as connection:
                insert_new(connection, EPOCHS, [{**row, "began_at": _now(connection)}], "epoch")

        # The key keeps it from being there twice where an answer was lost.
        self._database.patiently(begin)
        found = self.present(board)
        assert found is not None
        return found

    def end(self, key: str, reason: str, by: str) -> None:
        """Mark an epoch: the board has drifted, and the times of that epoch's records do not count any more.

        One that is marked stays as it is.

        Args:
            key: of the epoch.
            reason: for people.
            by: user and host.
        """
        row = {
            "epoch": key,
            "reason": printable(reason, _REASON_CHARACTERS),
            "found_by": _name(by),
        }

        def end() -> None:
            with self._database.writing() as connection:
                insert_new(connection, DRIFTS, [{**row, "found_at": _now(connection)}], "epoch")

        self._database.patiently(end)

    def records_of(self, key: str) -> int:
        """How many records are of an epoch."""
        query = sql.select(sql.func.count()).select_from(RECORDS).where(RECORDS.c.epoch == key)

        def ask() -> int:
            with self._database.reading() as connection:
                return int(connection.execute(query).scalar_one())

        return self._database.patiently(ask)

    def _epoch(self, row: Any) -> Epoch:
        name = printable(row.name, _NAME_CHARACTERS)
        try:
            times = reference_times(row.content, EPOCH_BYTES)
        except (ValueError, AttributeError) as error:
            raise EpochDamaged(
                f"record store {self._database.name}: the epoch of {name} is damaged "
                f"({printable(error, 200)}): begin another with sdk watch {name} --once --accept"
            ) from error
        drift = None
        if row.reason is not None:
            drift = Drift(
                printable(row.reason, _REASON_CHARACTERS),
                printable(row.found_by, _NAME_CHARACTERS),
                float(row.found_at),
            )
        return Epoch(
            row.epoch, printable(row.board, _NAME_CHARACTERS), name, float(row.began_at), times, drift
        )


def present_epoch(records: str | Path, board: str, patience_s: float | None = None) -> Epoch | None:
    """The last epoch of a board; a missing file is not made.

    Args:
        records: where the records are.
        board: what every host calls it.
        patience_s: how long a server that is away is asked again.

    Raises:
        EdgeError: the database cannot be opened, or is damaged.
    """
    if not is_there(records):
        return None
    with BoardEpochs(records, patience_s) as epochs:
        return epochs.present(board)


def mark_elsewhere(connection: sql.Connection, keys: Collection[str]) -> None:
    """Mark epochs that another store's board had, because it says that they have ended.

    What was taken from there before has no mark, and records do not change. Epochs of boards that are known
    here stay as they are: whether these have drifted is found by their own watch.

    Args:
        connection: in a transaction.
        keys: of the epochs.
    """
    if not keys:
        return
    now = _now(connection)
    unknown = {"board": "", "name": "", "content": "", "began_at": now}
    insert_new(connection, EPOCHS, [{**unknown, "epoch": key} for key in sorted(keys)], "epoch")
    query = sql.select(EPOCHS.c.epoch).where(EPOCHS.c.epoch.in_(sorted(keys)), EPOCHS.c.board == "")
    foreign = connection.execute(query).scalars().all()
    said = {"reason": "the store that its records are from says so", "found_by": "", "found_at": now}
    insert_new(connection, DRIFTS, [{**said, "epoch": key} for key in foreign], "epoch")


def drifted_boards(connection: sql.Connection) -> dict[str, str]:
    """Why each board has drifted that is taken out, by what every host calls it."""
    later = EPOCHS.alias()
    newest = sql.select(sql.func.max(later.c.id)).where(later.c.board == EPOCHS.c.board).scalar_subquery()
    query = (
        sql.select(EPOCHS.c.board, DRIFTS.c.reason)
        .join(DRIFTS, DRIFTS.c.epoch == EPOCHS.c.epoch)
        .where(EPOCHS.c.id == newest, EPOCHS.c.board != "")
        .order_by(DRIFTS.c.found_at.desc())
        .limit(_MOST_ROWS)
    )
    return {row.board: printable(row.reason, _REASON_CHARACTERS) for row in connection.execute(query)}


def _joined() -> sql.Select[Any]:
    return sql.select(EPOCHS, DRIFTS.c.reason, DRIFTS.c.found_by, DRIFTS.c.found_at).join(
        DRIFTS, DRIFTS.c.epoch == EPOCHS.c.epoch, isouter=True
    )


def _name(text: str) -> str:
    return printable(text, _NAME_CHARACTERS)


def _now(connection: sql.Connection) -> float:
    return float(connection.execute(sql.select(database_clock(connection))).scalar_one())
