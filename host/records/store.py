"""The store: records are added and never changed, by any number of processes at once."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sql

from device_agent.contract.limits import LIMITS
from host.closing import Closing
from host.errors import EdgeError
from host.records.checks import Implausible, check
from host.records.database import (
    BATCH,
    FOREIGN,
    RECORDS,
    WORKLOADS,
    Database,
    insert_new,
    row_of,
)
from host.records.foreign import ForeignRecord
from host.records.json_lines import Refused, read_lines, write_lines
from host.records.record import Record, fastest_program, key_of, line_of, profile_data, record_of

__all__ = ["ForeignSummary", "Record", "RecordStore", "Summary", "profile_data"]

_Item = TypeVar("_Item")
# A store that holds other times already must not have them sorted first.
_PLAUSIBLE = (LIMITS.records.shortest_s, LIMITS.records.longest_s)
_MEASURED = RECORDS.c.median_s.between(*_PLAUSIBLE)


@dataclass(frozen=True)
class Summary:
    """What is on record of one task on one profile in one version of its rule.

    Attributes:
        workload_hash: the task.
        space_version: of the candidates.
        measured: records with times that count.
        failed: records of candidates that do not build or run.
        best: the fastest record; the latest one where none has times that count.
        throttled: records whose times do not count, because the device throttled.
    """

    workload_hash: str
    space_version: int
    measured: int
    failed: int
    best: Record
    throttled: int = 0


@dataclass(frozen=True)
class ForeignSummary:
    """What is on record of one task from MetaSchedule's own rules.

    Attributes:
        workload_hash: the task.
        measured, failed: numbers of records.
        best_s: the least median in seconds; None where all failed.
    """

    workload_hash: str
    measured: int
    failed: int
    best_s: float | None


class RecordStore(Closing):
    """Records in a database.

    Args:
        url: SQLAlchemy URL; a path, or text that is no URL, makes a SQLite file.

    Raises:
        EdgeError: the database cannot be opened or is of another schema version. Every method raises it too
            where the database refuses.
    """

    def __init__(self, url: str | Path) -> None:
        self._database = Database(url)

    def close(self) -> None:
        """Let the database go."""
        self._database.engine.dispose()

    def append(self, records: Iterable[Record]) -> int:
        """Add records, all or none; one that is there already is not added again.

        Returns:
            How many are new.
        """
        count = 0
        with self._database.writing() as connection:
            for batch in _batches(records):
                rows = [row_of(record, _line(record)) for record in batch]
                count += insert_new(connection, RECORDS, rows, "record_key")
        return count

    def best(
        self, workload_hash: str, profile: Mapping[str, Any], versions: Mapping[str, int] | None = None
    ) -> Record | None:
        """The record whose program is to be taken; None without one.

        Args:
            workload_hash: of the task.
            profile: see `profile_data`.
            versions: of the rules whose programs can be made, by name; None takes every program.
        """
        records = self.history(workload_hash, profile)
        found = fastest_program(record for record in records if _is_of(record, versions))
        return None if found is None else found[0]

    def history(
        self, workload_hash: str, profile: Mapping[str, Any], failed: bool = False
    ) -> tuple[Record, ...]:
        """The measured records of a task on a profile, or those that failed instead; oldest first."""
        query = (
            sql.select(RECORDS.c.id, RECORDS.c.content)
            .where(
                RECORDS.c.workload_hash == workload_hash,
                RECORDS.c.profile_key == key_of(profile),
                RECORDS.c.median_s.is_(None) if failed else _MEASURED,
            )
            .order_by(RECORDS.c.id)
        )
        found = (record for _, record in self._read(query))
        # Records of a throttled device have no median either, but did not fail.
        return tuple(record for record in found if bool(record.failure) == failed)

    def select(
        self,
        profile: Mapping[str, Any] | None = None,
        versions: Mapping[str, int] | None = None,
        failed: bool = False,
    ) -> Iterator[Record]:
        """Measured records of one profile, of some versions of rules, or of both; oldest first.

        They are read in batches, and no lock is held between two of them: what is added meanwhile comes too.

        Args:
            profile: as `profile_data` gives it; None takes every one.
            versions: of the rules whose programs are wanted, by name; None takes every program.
            failed: take those too that do not build or run, or whose times do not count because the device
                throttled.
        """
        query = sql.select(RECORDS.c.id, RECORDS.c.content).order_by(RECORDS.c.id).limit(BATCH)
        if profile is not None:
            query = query.where(RECORDS.c.profile_key == key_of(profile))
        if versions is not None:
            query = query.where(RECORDS.c.space_version.in_(sorted(set(versions.values()))))
        if not failed:
            query = query.where(_MEASURED)
        last = -1
        while rows := self._rows(query.where(RECORDS.c.id > last), LIMITS.records.batch_bytes):
            yield from (record for _, record in self._records(rows) if _is_of(record, versions))
            last = rows[-1][0]

    def __iter__(self) -> Iterator[Record]:
        """Every record, failed ones too, oldest first."""
        return self.select(failed=True)

    def summaries(self) -> tuple[Summary, ...]:
        """What is on record, by task, profile and version of the rule."""
        keys = (RECORDS.c.workload_hash, RECORDS.c.profile_key, RECORDS.c.space_version)
        # What the line of a record says; a column would be a new version of every database.
        throttled = sql.func.count(sql.case((RECORDS.c.content.like('%"throttled": true%'), 1)))
        count = sql.func.count
        measured_ones = count(sql.case((_MEASURED, 1)))
        query = sql.select(*keys, count(), measured_ones, throttled).group_by(*keys)
        with self._database.reading() as connection:
            groups = connection.execute(query.order_by(*keys)).all()
        found = []
        for task, profile, version, total, measured, slowed in groups:
            ordered = (
                sql.select(RECORDS.c.id, RECORDS.c.content)
                .where(*(key == value for key, value in zip(keys, (task, profile, version), strict=True)))
                .where(sql.or_(RECORDS.c.median_s.is_(None), _MEASURED))
                .order_by(RECORDS.c.median_s.is_(None), RECORDS.c.median_s, RECORDS.c.id.desc())
            )
            # The first says what its column says, but in a store that somebody else wrote.
            best = self._read(ordered.limit(1)) or self._read(ordered.limit(BATCH))
            failed = total - measured - slowed
            if best:
                found.append(Summary(task, version, measured, failed, best[0][1], slowed))
        return tuple(found)

    def export(self, path: Path) -> int:
        """Write every record as one line of JSON, the file whole or not at all; returns how many."""
        return write_lines(self, path)

    def load(self, path: Path, refused: Refused | None = None) -> int:
        """Add the records of an exported file in one transaction; returns how many are new.

        Args:
            path: of the file.
            refused: told of the records that are left out, since no measurement says what they say.

        Raises:
            EdgeError: a line is no record of a known schema; nothing is added.
        """
        return self.append(read_lines(path, refused or Refused()))

    def append_foreign(self, records: Iterable[ForeignRecord]) -> int:
        """Add records of other programs than ours, all or none; returns how many are new."""
        count = 0
        with self._database.writing() as connection:
            for batch in _batches(records):
                functions = {record.workload_key: record.workload for record in batch}
                lines = [{"workload_key": key, "content": line} for key, line in functions.items()]
                insert_new(connection, WORKLOADS, lines, "workload_key")
                rows = [
                    {
                        "record_key": record.record_key,
                        "workload_hash": record.workload_hash,
                        "workload_key": record.workload_key,
                        "median_s": record.median_s,
                        "content": record.content,
                    }
                    for record in batch
                ]
                count += insert_new(connection, FOREIGN, rows, "record_key")
        return count

    def foreign(self) -> Iterator[ForeignRecord]:
        """Every record of other programs than ours, oldest first, read in batches."""
        columns = (FOREIGN.c.id, FOREIGN.c.workload_hash, WORKLOADS.c.content, FOREIGN.c.content)
        query = sql.select(*columns, FOREIGN.c.median_s).join_from(FOREIGN, WORKLOADS)
        last = -1
        while True:
            with self._database.reading() as connection:
                batch = query.where(FOREIGN.c.id > last).order_by(FOREIGN.c.id).limit(BATCH)
                rows = connection.execute(batch).all()
            if not rows:
                return
            for number, task, workload, content, seconds in rows:
                yield ForeignRecord(task, workload, content, seconds)
                last = number

    def foreign_summaries(self) -> tuple[ForeignSummary, ...]:
        """What is on record of other programs than ours, by task."""
        task = FOREIGN.c.workload_hash
        seconds = sql.case((FOREIGN.c.median_s.between(*_PLAUSIBLE), FOREIGN.c.median_s))
        query = sql.select(task, sql.func.count(), sql.func.count(seconds), sql.func.min(seconds))
        with self._database.reading() as connection:
            rows = connection.execute(query.group_by(task).order_by(task)).all()
        return tuple(
            ForeignSummary(key, measured, count - measured, best) for key, count, measured, best in rows
        )

    def _read(self, query: sql.Select[Any]) -> list[tuple[int, Record]]:
        return list(self._records(self._rows(query)))

    def _rows(self, query: sql.Select[Any], most_bytes: float = math.inf) -> list[tuple[int, str]]:
        """The rows of a query; no more than the first ones, with so many bytes."""
        rows: list[tuple[int, str]] = []
        size = 0
        with self._database.reading() as connection:
            for number, content in connection.execute(query):
                rows.append((number, content))
                size += len(content) if isinstance(content, (str, bytes)) else 0
                if size > most_bytes:
                    break
        return rows

    def _records(self, rows: list[tuple[int, str]]) -> Iterator[tuple[int, Record]]:
        """The records of rows; those that say what no measurement says are nobody's."""
        for number, content in rows:
            with contextlib.suppress(Implausible):
                yield number, self._record(number, content)

    def _record(self, number: int, content: str) -> Record:
        try:
            return record_of(content)
        except Implausible:
            raise
        except ValueError as error:
            raise EdgeError(
                f"record store {self._database.name}, row {number} is damaged ({error}): "
                "repair it, or take another store with --records"
            ) from error


def _is_of(record: Record, versions: Mapping[str, int] | None) -> bool:
    candidate = record.candidate
    return versions is None or versions.get(candidate.rule) == candidate.space_version


def _line(record: Record) -> str:
    try:
        check(record)
    except Implausible as error:
        task = record.candidate.workload_hash
        raise EdgeError(f"a record of task {task} cannot be kept: {error}; measure again") from error
    return line_of(record)


def _batches(items: Iterable[_Item]) -> Iterator[list[_Item]]:
    rest = iter(items)
    while batch := list(islice(rest, BATCH)):
        yield batch
