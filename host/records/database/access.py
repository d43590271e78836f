"""An opened database: connections to read and to write with, and patience with a server that is away."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

import sqlalchemy as sql
from sqlalchemy.exc import SQLAlchemyError

from host.closing import Closing
from host.errors import EdgeError, UserError
from host.records.database.engine import BEGIN, engine_of, parsed, write_ahead
from host.records.database.problems import ServerAway, problem, store_name
from host.records.database.tables import REVISION
from host.records.database.upgrade import OLDEST, check_file, downgrade, revision_of, upgrade

# Seconds for which the same is tried again while a server is away: a restart takes less.
PATIENCE_S = 60.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0

_Result = TypeVar("_Result")


class Database:
    """An opened database of the present revision.

    SQLite's is made, or brought up to date, where it is opened. A shared one is made where it is empty; only
    its owner brings it up to date, and says so (`upgrading`), since programs of other hosts read it too.

    Args:
        url: SQLAlchemy URL; a path, or text that is no URL, makes a SQLite file.
        upgrading: bring a shared database up to date.
        patience_s: how long `patiently` waits for a server that is away. If given, opening waits as long: in
            the middle of a command, a server that is restarted is no reason to end.

    Attributes:
        name: what it is called in messages, without secrets.

    Raises:
        UserError: it is neither of SQLite nor of PostgreSQL.
        EdgeError: it cannot be opened, or is of another revision.
    """

    def __init__(self, url: str | Path, upgrading: bool = False, patience_s: float | None = None) -> None:
        self.name = store_name(url)
        self._url = url
        self._patience_s = PATIENCE_S if patience_s is None else patience_s
        with ExitStack() as opened:
            try:
                self.engine = engine_of(parsed(url))
                opened.callback(self.engine.dispose)
            except (SQLAlchemyError, UnicodeDecodeError, ImportError) as error:
                raise self._cannot_be_opened(error) from error
            if patience_s is None:
                self._open(upgrading)
            else:
                self.patiently(lambda: self._open(upgrading))
            opened.pop_all()

    def _open(self, upgrading: bool) -> None:
        try:
            self._prepare(upgrading)
        except (SQLAlchemyError, UnicodeDecodeError, ImportError) as error:
            raise self._cannot_be_opened(error) from error

    def _cannot_be_opened(self, error: SQLAlchemyError | UnicodeDecodeError | ImportError) -> EdgeError:
        return problem(error, self._url, f"record store {self.name} cannot be opened")

    @property
    def shared(self) -> bool:
        """Whether other machines write the database: its content is not trusted."""
        return self.engine.dialect.name != "sqlite"

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

    def patiently(self, action: Callable[[], _Result]) -> _Result:
        """The result of an action, which is called again while the server is away.

        Args:
            action: in one transaction; called again where it is unknown whether the first was committed.

        Raises:
            EdgeError: the database refuses, or its server stayed away.
        """
        until = time.monotonic() + self._patience_s
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return action()
            except ServerAway as error:
                left_s = until - time.monotonic()
                if left_s <= 0.0:
                    raise ServerAway(f"{error} (it was tried for {self._patience_s:g} s)") from error
                time.sleep(min(pause_s, left_s))
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def downgrade(self, version: int) -> None:
        """Bring the tables back to an earlier version, for programs that read no newer one.

        All records stay. What that version has no tables for goes: leases before 3, epochs of boards with
        the marks of those that drifted before 4.

        Args:
            version: of the schema.

        Raises:
            UserError: there is no such version.
            EdgeError: the tables are not this user's to change; nothing was changed.
        """
        if not OLDEST <= version < int(REVISION):
            raise UserError(
                f"record store {self.name} is of schema version {int(REVISION)}: name an earlier one, from "
                f"{OLDEST} on"
            )
        with self.writing() as connection:
            downgrade(connection, version)

    @contextmanager
    def _transaction(self) -> Iterator[sql.Connection]:
        with self.engine.connect() as connection:
            # A writer waits for another before it reads: else what it read is outdated, an error at once.
            writer = connection.execution_options(**{BEGIN: "BEGIN IMMEDIATE"})
            with writer.begin():
                yield writer

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, UnicodeDecodeError) as error:
            raise problem(error, self._url, f"record store {self.name}") from error

    def _prepare(self, upgrading: bool) -> None:
        with self.engine.connect() as connection:
            if not self.shared:
                check_file(connection, self.name)
            found = revision_of(connection, self.name)
        if found == REVISION:
            return
        if not self.shared:
            write_ahead(self.engine)
        elif found and not upgrading:
            raise EdgeError(
                f"record store {self.name} is of schema version {int(found)}, this program reads version "
                f"{int(REVISION)}: its owner brings it up to date with sdk records upgrade, when every host "
                "has this program; nothing was changed"
            )
        with self._transaction() as connection:
            upgrade(connection, self.name)


class PatientTables(Closing):
    """Tables beside the records, which a command reads and writes while it works.

    Args:
        records: where the records are.
        patience_s: how long a server that is away is asked again.

    Raises:
        EdgeError: the database cannot be opened; every method raises it too where the database refuses.
    """

    def __init__(self, records: str | Path, patience_s: float | None = None) -> None:
        self._database = Database(records, patience_s=patience_s)

    def close(self) -> None:
        """Close the connections to the database."""
        self._database.engine.dispose()
