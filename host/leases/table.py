"""Leases as rows of a database: taken, renewed and released, each in one transaction.

A lease is a place in a queue with a visible owner. That two hosts never measure on one board at once is the
agent's to see to (`device_agent.serve`): a board refuses a second host whatever is written here.

Every time is of the clock of the database. What a host takes for the time of day decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sql

from device_agent.contract.text import printable
from host.errors import UserError
from host.records.database import LEASES, QUEUE, RELEASES, PatientTables, database_clock, inserting
from host.records.epochs import drifted_boards

# A holder that is silent for so long loses its board; a waiting host loses its place.
LEASE_S = 45.0
# How often a holder renews its lease.
RENEW_S = 15.0
# A heartbeat that is so much late shows.
_LATE_S = 1.5 * RENEW_S
# What is read of a database that is not trusted.
_MOST_ROWS = 4096
_NAME_CHARACTERS = 200


@dataclass(frozen=True)
class Request:
    """A request for a board: the board, the command and its owner.

    Attributes:
        board: what every host calls it.
        name: what this host calls it.
        owner: user and host.
        job: what is to be done there, for people.
        ticket: a random word that names this request.
    """

    board: str
    name: str
    owner: str
    job: str
    ticket: str

    def row(self) -> dict[str, str]:
        """The same as the columns of a row."""
        return {
            "board": printable(self.board, _NAME_CHARACTERS),
            "name": printable(self.name, _NAME_CHARACTERS),
            "owner": printable(self.owner, _NAME_CHARACTERS),
            "job": printable(self.job, _NAME_CHARACTERS),
            "ticket": self.ticket,
        }


@dataclass(frozen=True)
class Waiting:
    """A request that waits for a board.

    Attributes:
        owner: user and host.
        job: what is to be done.
        for_s: seconds since it was made.
    """

    owner: str
    job: str
    for_s: float


@dataclass(frozen=True)
class BoardStatus:
    """The holder and the queue of a board.

    Attributes:
        board: what every host calls it.
        name: what its holder called it, or its last one.
        owner: user and host; "" where the board is free.
        job: what is done there.
        since_s: seconds that the owner has had it.
        left_s: seconds until the lease ends unless it is renewed.
        heartbeat_s: seconds since its owner, or its last one, was heard of.
        health: "free"; "held"; "late", where a heartbeat did not come; "lost", where the holder is gone and
            the next host gets the board; "drifted", held or not, where it is taken out.
        waiting: those who wait, the next one first.
    """

    board: str
    name: str
    owner: str
    job: str
    since_s: float
    left_s: float
    heartbeat_s: float
    health: str
    waiting: tuple[Waiting, ...] = ()

    def __str__(self) -> str:
        """Who has it, as the end of a sentence."""
        if not self.owner:
            return "others wait for it"
        return f"{self.owner} has had it for {_duration(self.since_s)} ({self.job or 'a job'})"


class LeaseTable(PatientTables):
    """The leases of a database; they stay until they end, also when this is closed."""

    @property
    def shared(self) -> bool:
        """Whether other machines use the same leases."""
        return self._database.shared

    def take(self, request: Request) -> BoardStatus | None:
        """Take a board, or join the queue for it; returns who has it, None where the request has it now.

        Whoever waits calls this again, within `LEASE_S`. The first in line is served first.
        """
        return self._database.patiently(lambda: self._take(request.row()))

    def _take(self, row: dict[str, str]) -> BoardStatus | None:
        with self._database.writing() as connection:
            now = connection.execute(sql.select(database_clock(connection))).scalar_one()
            board = row["board"]
            connection.execute(sql.delete(QUEUE).where(QUEUE.c.board == board, QUEUE.c.until <= now))
            line = sql.select(QUEUE.c.ticket).where(QUEUE.c.board == board).order_by(QUEUE.c.id).limit(1)
            first = connection.execute(line).scalar_one_or_none()
            held = sql.select(LEASES.c.ticket).where(LEASES.c.board == board)
            # Whoever has it already asks again where the answer was lost.
            has_it = connection.execute(held).scalar_one_or_none() == row["ticket"]
            times = {"since": now, "renewed": now, "until": now + LEASE_S}
            if has_it or first in (None, row["ticket"]):
                statement = inserting(connection, LEASES).values(**row, **times)
                changed = {name: statement.excluded[name] for name in (*row, *times) if name != "board"}
                mine = sql.or_(LEASES.c.until <= now, LEASES.c.ticket.in_(("", row["ticket"])))
                taking = statement.on_conflict_do_update(
                    index_elements=["board"], set_=changed, where=mine
                ).returning(LEASES.c.ticket)
                if connection.execute(taking).scalar_one_or_none() is not None:
                    connection.execute(sql.delete(QUEUE).where(QUEUE.c.ticket == row["ticket"]))
                    return None
            waiting = {name: row[name] for name in ("board", "ticket", "owner", "job")}
            queued = inserting(connection, QUEUE).values(**waiting, since=now, until=now + LEASE_S)
            connection.execute(
                queued.on_conflict_do_update(index_elements=["ticket"], set_={"until": queued.excluded.until})
            )
            found = connection.execute(sql.select(LEASES).where(LEASES.c.board == board)).one_or_none()
            return _status(found._mapping, now, ()) if found is not None else _free_board(row)

    def renew(self, requests: Sequence[Request]) -> set[str]:
        """Keep boards, by one statement for all of them.

        Returns:
            The tickets of those that are kept; the other boards are another's, or were released by force.
        """

        def renew() -> set[str]:
            kept: set[str] = set()
            with self._database.writing() as connection:
                now = database_clock(connection)
                for begin in range(0, len(requests), _MOST_ROWS):
                    some = requests[begin : begin + _MOST_ROWS]
                    # A ticket names one request, and with it one board; the boards are what is indexed.
                    boards = LEASES.c.board.in_([one.row()["board"] for one in some])
                    mine = boards, LEASES.c.ticket.in_([one.ticket for one in some])
                    change = sql.update(LEASES).where(*mine).values(renewed=now, until=now + LEASE_S)
                    kept.update(connection.execute(change.returning(LEASES.c.ticket)).scalars())
            return kept

        return self._database.patiently(renew) if requests else set()

    def release(self, request: Request) -> None:
        """Give a board back, or leave its queue; nothing happens where another holder has it."""

        def release() -> None:
            with self._database.writing() as connection:
                connection.execute(sql.delete(QUEUE).where(QUEUE.c.ticket == request.ticket))
                mine = (LEASES.c.board == request.row()["board"], LEASES.c.ticket == request.ticket)
                connection.execute(sql.update(LEASES).where(*mine).values(**_FREED))

        self._database.patiently(release)

    def release_by_force(self, board: str, by: str) -> BoardStatus:
        """Take a board from its holder, and keep who did so; returns who held it.

        Args:
            board: what every host calls it, or the name that its holder gave it.
            by: user and host.

        Raises:
            UserError: no host has such a board, or several have this name.
        """

        def release() -> BoardStatus:
            with self._database.writing() as connection:
                now = connection.execute(sql.select(database_clock(connection))).scalar_one()
                named = sql.or_(LEASES.c.board == board, LEASES.c.name == board)
                # Locked until the end, so that what is kept is whose it was.
                query = sql.select(LEASES).where(named, LEASES.c.ticket != "").with_for_update().limit(2)
                rows = connection.execute(query).all()
                if not rows:
                    raise UserError(f"nobody has a board {printable(board)}: sdk fleet status lists them")
                if len(rows) > 1:
                    both = " and ".join(printable(row.board) for row in rows)
                    raise UserError(f"several boards are called {printable(board)}: say which: {both}")
                row = rows[0]
                kept = {name: getattr(row, name) for name in ("board", "ticket", "owner", "job")}
                by_whom = printable(by, _NAME_CHARACTERS)
                connection.execute(RELEASES.insert(), {**kept, "released_by": by_whom, "released_at": now})
                connection.execute(sql.update(LEASES).where(LEASES.c.board == row.board).values(**_FREED))
                return _status(row._mapping, now, ())

        return self._database.patiently(release)

    def why_lost(self, request: Request) -> str:
        """Why a board is no longer this request's, as the end of a sentence."""

        def ask() -> str:
            with self._database.reading() as connection:
                query = sql.select(RELEASES.c.released_by).where(RELEASES.c.ticket == request.ticket)
                by = connection.execute(query.limit(1)).scalar_one_or_none()
                if by is not None:
                    return f"{printable(by)} released it by force"
                now = connection.execute(sql.select(database_clock(connection))).scalar_one()
                there = sql.select(LEASES).where(LEASES.c.board == request.row()["board"])
                row = connection.execute(there).one_or_none()
                holder = _status(row._mapping, now, ()) if row is not None else None
                return f"this host was not heard of for {LEASE_S:g} s" + (f", and {holder}" if holder else "")

        return self._database.patiently(ask)

    def status(self) -> tuple[BoardStatus, ...]:
        """Every board that was ever leased, with who waits for it."""

        def ask() -> tuple[BoardStatus, ...]:
            with self._database.reading() as connection:
                now = connection.execute(sql.select(database_clock(connection))).scalar_one()
                every = sql.select(LEASES).order_by(LEASES.c.name, LEASES.c.board).limit(_MOST_ROWS)
                boards = connection.execute(every).all()
                query = sql.select(QUEUE).where(QUEUE.c.until > now).order_by(QUEUE.c.id).limit(_MOST_ROWS)
                lines: dict[str, list[Any]] = {}
                for row in connection.execute(query).all():
                    lines.setdefault(row.board, []).append(row)
                drifted = drifted_boards(connection)
                every_one = (_status(row._mapping, now, lines.get(row.board, ())) for row in boards)
                return tuple(
                    replace(one, health="drifted") if one.board in drifted else one for one in every_one
                )

        return self._database.patiently(ask)


_FREED = {"ticket": "", "owner": "", "job": "", "until": 0.0}


def _status(row: Any, now: float, waiting: Sequence[Any]) -> BoardStatus:
    """The state of a row at a time; its texts are not trusted."""
    held = bool(row["ticket"])
    heartbeat_s, left_s = max(0.0, now - row["renewed"]), max(0.0, row["until"] - now)
    health = "free"
    if held:
        health = "lost" if not left_s else "late" if heartbeat_s > _LATE_S else "held"
    texts = {name: printable(row[name]) for name in ("board", "name", "owner", "job")}
    return BoardStatus(
        **texts,
        since_s=max(0.0, now - row["since"]) if held else 0.0,
        left_s=left_s,
        heartbeat_s=heartbeat_s,
        health=health,
        waiting=tuple(
            Waiting(printable(one.owner), printable(one.job), max(0.0, now - one.since)) for one in waiting
        ),
    )


def _free_board(row: dict[str, str]) -> BoardStatus:
    """A board that is free, and for which another request is first in the queue."""
    return BoardStatus(row["board"], row["name"], "", "", 0.0, 0.0, 0.0, "free")


def _duration(seconds: float) -> str:
    minutes = int(seconds // 60)
    return f"{seconds:.0f} s" if minutes < 2 else f"{minutes} min"
