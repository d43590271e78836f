"""The store: records are added and never changed, by any number of processes at once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sql

from device_agent.contract.limits import LIMITS
from host.closing import Closing
from host.errors import EdgeError
from host.records.best import best_numbers
from host.records.checks import Implausible, check, check_foreign
from host.records.choice import best_program
from host.records.database import (
    BATCH,
    DRIFTS,
    FOREIGN,
    RECORDS,
    WORKLOADS,
    Database,
    insert_new,
    row_of,
)
from host.records.epochs import mark_elsewhere
from host.records.foreign import ForeignRecord
from host.records.json_lines import Refused, read_lines, write_lines
from host.records.record import (
    DRIFTED,
    Record,
    invalidated,
    key_of,
    line_of,
    profile_data,
    record_from_elsewhere,
    record_of,
)
from host.records.row_reader import RowReader
from host.records.summary import ForeignSummary, Summary

__all__ = ["ForeignSummary", "Record", "RecordStore", "Summary", "profile_data"]

_Item = TypeVar("_Item")
# A store that holds other times already must not have them sorted first.
_PLAUSIBLE = (LIMITS.records.shortest_s, LIMITS.records.longest_s)
# Records among which the newest of each board is looked for.
_NEWEST = 20_000
_TIMED = RECORDS.c.median_s.between(*_PLAUSIBLE)
_OF_DRIFTED = RECORDS.c.epoch.in_(sql.select(DRIFTS.c.epoch))
_MEASURED = sql.and_(_TIMED, sql.not_(_OF_DRIFTED))


class RecordStore(Closing):
    """Records in a database.

    What a shared database holds is from elsewhere: its rows are read by the rules for imported records, and
    what such a record may not say is not kept there. While its server is away, the same is tried again for a
    minute; nothing is added twice.

    Args:
        url: SQLAlchemy URL; a path, or text that is no URL, makes a SQLite file.

    Raises:
        UserError: it is a database of neither SQLite nor PostgreSQL.
        EdgeError: the database cannot be opened or is of another schema version. Every method raises it too
            where the database refuses.
    """

    def __init__(self, url: str | Path) -> None:
        self._database = Database(url)
        self._reader = RowReader(self._database)

    def close(self) -> None:
        """Close the connections to the database."""
        self._database.engine.dispose()

    def append(self, records: Iterable[Record]) -> int:
        """Add records, all or none; one that is there already is not added again.

        Where one that is there comes with the mark of a drift, its epoch gets that mark here too
        (`host.records.epochs.mark_elsewhere`).

        Returns:
            How many are new.
        """

        def lines(batch: Sequence[Record]) -> list[dict[str, Any]]:
            return [row_of(record, self._line(record)) for record in batch]

        def add(connection: sql.Connection) -> int:
            count = 0
            for batch in _batches(records):
                new = insert_new(connection, RECORDS, lines(batch), "record_key")
                if new < len(batch):
                    mark_elsewhere(connection, _drifted_epochs(batch))
                count += new
            return count

        return self._added(records, add)

    def best(
        self,
        workload_hash: str,
        profile: Mapping[str, Any],
        versions: Mapping[str, int] | None = None,
        exponent: float = 0.0,
    ) -> Record | None:
        """The record whose program is to be taken; None without one.

        Args:
            workload_hash: of the task.
            profile: see `profile_data`.
            versions: of the rules whose programs can be made, by name; None takes every program.
            exponent: of watts in the cost by which programs are compared (`host.records.choice`).
        """
        records = self.history(workload_hash, profile)
        found = best_program((record for record in records if _is_of(record, versions)), exponent)
        return None if found is None else found[0]

    def best_of(self, tasks: Mapping[str, tuple[str, int]], profile: Mapping[str, Any]) -> dict[str, Record]:
        """The records whose programs are to be taken for the tasks of a model, in three questions at most.

        Args:
            tasks: the rule of each task and its version, by workload hash; others' programs do not count.
            profile: see `profile_data`.

        Returns:
            What `best` gives for each task, without those that have no record.
        """
        numbers = best_numbers(
            lambda query: self._reader.ask(lambda asked: asked.execute(query).all()),
            key_of(profile),
            tasks,
            _MEASURED,
            arrays=self._database.shared,
        )
        query = sql.select(RECORDS).where(RECORDS.c.id.in_(list(numbers)))
        taken = {row.id: row for row in self._reader.rows(query)} if numbers else {}
        found: dict[str, Record] = {}
        for number, task in numbers.items():
            record = self._matching_record(taken.get(number))
            if record is None:
                # The columns of a row of another host need not agree with its record.
                record = self.best(task, profile, dict([tasks[task]]))
            if record is not None:
                found[task] = record
        return found

    def history(
        self, workload_hash: str, profile: Mapping[str, Any], failed: bool = False
    ) -> tuple[Record, ...]:
        """The measured records of a task on a profile, or those that failed instead; oldest first."""
        query = sql.select(RECORDS.c.id, RECORDS.c.content).where(
            RECORDS.c.workload_hash == workload_hash,
            RECORDS.c.profile_key == key_of(profile),
            RECORDS.c.median_s.is_(None) if failed else _MEASURED,
        )
        # Records of a throttled device have no median either, but did not fail.
        return tuple(record for record in self._in_batches(query) if bool(record.failure) == failed)

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
                throttled, or has drifted since.
        """
        query = sql.select(RECORDS.c.id, RECORDS.c.content)
        if profile is not None:
            query = query.where(RECORDS.c.profile_key == key_of(profile))
        if versions is not None:
            query = query.where(RECORDS.c.space_version.in_(sorted(set(versions.values()))))
        if not failed:
            query = query.where(_MEASURED)
        yield from (record for record in self._in_batches(query) if _is_of(record, versions))

    def __iter__(self) -> Iterator[Record]:
        """Every record, failed ones too, oldest first."""
        return self.select(failed=True)

    def summaries(self) -> tuple[Summary, ...]:
        """What is on record, by task, profile and version of the rule."""
        keys = (RECORDS.c.workload_hash, RECORDS.c.profile_key, RECORDS.c.space_version)
        # Read from the line of a record; a column would be a new version of every database.
        count = sql.func.count
        throttled = count(sql.case((RECORDS.c.content.like('%"throttled": true%'), 1)))
        pulled = count(sql.case((RECORDS.c.content.like('%"pack": {"key": "%'), 1)))
        measured_ones = count(sql.case((_MEASURED, 1)))
        marked = RECORDS.c.content.like(f'%"invalid": "{DRIFTED}"%')
        drifted = count(sql.case((sql.or_(sql.and_(_TIMED, _OF_DRIFTED), marked), 1)))
        query = sql.select(*keys, count(), measured_ones, throttled, pulled, drifted).group_by(*keys)
        groups = self._reader.ask(lambda asked: asked.execute(query.order_by(*keys)).all())
        found = []
        for task, profile, version, total, measured, slowed, others, outdated in groups:
            ordered = (
                sql.select(RECORDS.c.id, RECORDS.c.content)
                .where(*(key == value for key, value in zip(keys, (task, profile, version), strict=True)))
                .where(sql.or_(RECORDS.c.median_s.is_(None), _MEASURED))
                .order_by(RECORDS.c.median_s.is_(None), RECORDS.c.median_s, RECORDS.c.id.desc())
            )
            # The first agrees with its column, except in a store of another host.
            read = self._read(ordered.limit(1)) or self._read(ordered.limit(BATCH))
            failed = total - measured - slowed - outdated
            if read:
                _, best = min(read, key=_rank)
                found.append(Summary(task, version, measured, failed, best, slowed, others, outdated))
        return tuple(found)

    def export(self, path: Path) -> int:
        """Write every record as one line of JSON, the file whole or not at all; returns how many."""
        return write_lines(self, path)

    def load(self, path: Path, refused: Refused | None = None) -> int:
        """Add the records of an exported file in one transaction; returns how many are new.

        Args:
            path: of the file.
            refused: counts the records that are left out, since no measurement gives such values.

        Raises:
            EdgeError: a line is no record of a known schema; nothing is added.
        """
        return self.append(read_lines(path, refused or Refused()))

    def append_foreign(self, records: Iterable[ForeignRecord]) -> int:
        """Add records of other programs than ours, all or none; returns how many are new."""

        def add(connection: sql.Connection) -> int:
            count = 0
            for batch in _batches(records):
                functions = {record.workload_key: record.workload for record in batch}
                lines = [{"workload_key": key, "content": line} for key, line in functions.items()]
                insert_new(connection, WORKLOADS, lines, "workload_key")
                count += insert_new(connection, FOREIGN, list(map(_foreign_row, batch)), "record_key")
            return count

        return self._added(records, add)

    def newest_by_epoch(self) -> dict[str, Record]:
        """The newest record of each epoch of a board, among the last thousands of records."""
        last = sql.select(sql.func.max(RECORDS.c.id)).scalar_subquery()
        newest = (
            sql.select(sql.func.max(RECORDS.c.id))
            .where(RECORDS.c.id > last - _NEWEST, RECORDS.c.epoch != "")
            .group_by(RECORDS.c.epoch)
            .limit(BATCH)
        )
        numbers = self._reader.ask(lambda asked: list(asked.execute(newest).scalars()))
        query = sql.select(RECORDS.c.id, RECORDS.c.content).where(RECORDS.c.id.in_(numbers))
        found = [record for _, record in self._records(self._reader.rows(query))] if numbers else []
        return {one.origin.epoch: one for one in found if one.origin.epoch is not None}

    def foreign(self) -> Iterator[ForeignRecord]:
        """Every record of other programs than ours, oldest first, read in batches."""
        columns = (FOREIGN.c.id, FOREIGN.c.workload_hash, FOREIGN.c.workload_key, FOREIGN.c.median_s)
        query = sql.select(*columns, FOREIGN.c.content)
        for rows in self._reader.batches(query, FOREIGN.c.id):
            keys = {row.workload_key for row in rows}
            functions = self._functions(keys)
            for row in rows:
                # A file of another program may contain records without their function.
                if row.workload_key in functions:
                    function = functions[row.workload_key]
                    yield ForeignRecord(row.workload_hash, function, row.content, row.median_s)

    def _functions(self, keys: Collection[str]) -> dict[str, str]:
        """The functions of foreign records, by their keys."""
        number = sql.func.row_number().over(order_by=WORKLOADS.c.workload_key).label("id")
        query = sql.select(number, WORKLOADS.c.workload_key, WORKLOADS.c.content)
        rows = self._reader.rows(query.where(WORKLOADS.c.workload_key.in_(list(keys))))
        return {row.workload_key: row.content for row in rows}

    def foreign_summaries(self) -> tuple[ForeignSummary, ...]:
        """What is on record of other programs than ours, by task."""
        task = FOREIGN.c.workload_hash
        seconds = sql.case((FOREIGN.c.median_s.between(*_PLAUSIBLE), FOREIGN.c.median_s))
        query = sql.select(task, sql.func.count(), sql.func.count(seconds), sql.func.min(seconds))
        rows = self._reader.ask(lambda asked: asked.execute(query.group_by(task).order_by(task)).all())
        return tuple(
            ForeignSummary(key, measured, count - measured, best) for key, count, measured, best in rows
        )

    def _added(self, records: Iterable[Any], add: Callable[[sql.Connection], int]) -> int:
        """The result of an addition in one transaction, which is repeated while the server is away."""

        def write() -> int:
            with self._database.writing() as connection:
                return add(connection)

        # What comes out of an iterator comes once.
        return self._database.patiently(write) if isinstance(records, Sequence) else write()

    def _in_batches(self, query: sql.Select[Any]) -> Iterator[Record]:
        """The records of a query, oldest first, with a bounded part of them in memory."""
        for rows in self._reader.batches(query, RECORDS.c.id):
            yield from (record for _, record in self._records(rows))

    def _read(self, query: sql.Select[Any]) -> list[tuple[int, Record]]:
        return list(self._records(self._reader.rows(query)))

    def _records(self, rows: Iterable[sql.Row[Any]]) -> Iterator[tuple[int, Record]]:
        """The records of rows; the times of boards that have drifted since are marked as invalid."""
        read = list(self._plausible_records(rows))
        epochs = {record.origin.epoch for _, record in read if record.origin.epoch is not None}
        query = sql.select(DRIFTS.c.epoch).where(DRIFTS.c.epoch.in_(sorted(epochs)))
        drifted: set[str] = set()
        if epochs:
            drifted.update(self._reader.ask(lambda asked: asked.execute(query).scalars().all()))
        for number, record in read:
            yield number, invalidated(record) if record.origin.epoch in drifted else record

    def _plausible_records(self, rows: Iterable[sql.Row[Any]]) -> Iterator[tuple[int, Record]]:
        """The records of rows, without those whose values no measurement gives."""
        for row in rows:
            with contextlib.suppress(Implausible):
                yield row.id, self._record(row.id, row.content)

    def _matching_record(self, row: sql.Row[Any] | None) -> Record | None:
        """The record of a row; None where it is implausible, or differs from the columns of the row."""
        for _, record in self._plausible_records([] if row is None else [row]):
            if row is not None and {**row._mapping, "id": 0} == {**row_of(record, row.content), "id": 0}:
                return record
        return None

    def _record(self, number: int, content: Any) -> Record:
        try:
            if self._database.shared:
                return record_from_elsewhere(content.encode("utf-8"))
            return record_of(content)
        except Implausible:
            raise
        except ValueError as error:
            raise EdgeError(
                f"record store {self._database.name}, row {number} is damaged ({error}): "
                "repair it, or take another store with --records"
            ) from error

    def _line(self, record: Record) -> str:
        """The line of a record that may be kept.

        Raises:
            EdgeError: no reader would accept the record.
        """
        try:
            (check_foreign if self._database.shared else check)(record)
        except Implausible as error:
            task = record.candidate.workload_hash
            raise EdgeError(
                f"a record of task {task} cannot be kept: {error}; measure again"
                + (" when this machine's clock is right" if "date" in str(error) else "")
            ) from error
        return line_of(record)


def _drifted_epochs(records: Iterable[Record]) -> set[str]:
    """The epochs of records that come with the mark of a drift."""
    marked = (one.origin.epoch for one in records if one.measurement.invalid == DRIFTED)
    return {epoch for epoch in marked if epoch is not None}


def _rank(numbered: tuple[int, Record]) -> tuple[bool, float, int]:
    """The fastest record first; the latest one where none has a time that counts."""
    number, record = numbered
    return record.median_s is None, record.median_s or 0.0, -number


def _is_of(record: Record, versions: Mapping[str, int] | None) -> bool:
    candidate = record.candidate
    return versions is None or versions.get(candidate.rule) == candidate.space_version


def _foreign_row(record: ForeignRecord) -> dict[str, Any]:
    return {
        "record_key": record.record_key,
        "workload_hash": record.workload_hash,
        "workload_key": record.workload_key,
        "median_s": record.median_s,
        "content": record.content,
    }


def _batches(items: Iterable[_Item]) -> Iterator[list[_Item]]:
    rest = iter(items)
    while batch := list(islice(rest, BATCH)):
        yield batch
