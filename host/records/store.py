"""Records: what ran on which device, how fast, who proposed it. Rows are added and never changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import sqlalchemy as sql
from sqlalchemy.exc import SQLAlchemyError

from host.errors import EdgeError
from host.model import SPACE_VERSION, Candidate, DeviceProfile, Energy, Measurement

SCHEMA = "edgetlm.record/1"
# Rows in memory at a time.
_BATCH = 500

_METADATA = sql.MetaData()
_RECORDS = sql.Table(
    "records",
    _METADATA,
    sql.Column("id", sql.Integer, primary_key=True),
    sql.Column("workload_hash", sql.String(64), nullable=False),
    sql.Column("profile_key", sql.String(64), nullable=False),
    sql.Column("candidate_key", sql.String(64), nullable=False),
    sql.Column("median_s", sql.Float, nullable=False),
    sql.Column("made_at", sql.String(40), nullable=False),
    sql.Column("content", sql.JSON, nullable=False),
    sql.Index("by_task", "workload_hash", "profile_key", "median_s"),
)


@dataclass(frozen=True)
class Record:
    """One measurement of one candidate on one device.

    Attributes:
        candidate: the program, with its task's hash.
        profile: the device's profile in plain data (`profile_data`).
        measurement: times, energy and the device's state.
        made_at: UTC time in ISO format.
        origin: what made it: command, model, seed, versions.
    """

    candidate: Candidate
    profile: dict[str, Any]
    measurement: Measurement
    made_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat())
    origin: dict[str, Any] = field(default_factory=dict)

    @property
    def profile_key(self) -> str:
        """Hash of the profile."""
        return _key(self.profile)

    @property
    def candidate_key(self) -> str:
        """Hash of the program, whoever proposed it."""
        candidate = self.candidate
        decisions = [[name, value] for name, value in candidate.decisions]
        return _key([candidate.workload_hash, candidate.rule, decisions, candidate.space_version])


def profile_data(profile: DeviceProfile) -> dict[str, Any]:
    """What of a profile decides how fast a program is; the user's name for the device does not."""
    content = {
        "board": profile.board.name,
        "target": dict(profile.board.tvm_target),
        # As the board declares it: a new calibration changes no program, and no record becomes foreign.
        "hardware": asdict(profile.board.hardware),
        "threads": profile.threads,
    }
    # As it comes back from the database: lists, no tuples.
    plain: dict[str, Any] = json.loads(json.dumps(content))
    return plain


class RecordStore:
    """Records in a database.

    Args:
        url: SQLAlchemy URL; a path makes a SQLite file.

    Raises:
        EdgeError: the database cannot be opened.
    """

    def __init__(self, url: str | Path) -> None:
        if isinstance(url, Path):
            url.parent.mkdir(parents=True, exist_ok=True)
            url = f"sqlite:///{url}"
        self._url = url
        try:
            self._engine = sql.create_engine(url)
            _METADATA.create_all(self._engine)
        except SQLAlchemyError as error:
            raise EdgeError(f"record store {url} cannot be opened: {_reason(error)}") from error

    def __enter__(self) -> RecordStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let the database go."""
        self._engine.dispose()

    def append(self, records: Iterable[Record]) -> int:
        """Add records, all or none.

        Returns:
            How many.

        Raises:
            EdgeError: the database refuses.
        """
        rows = [_row(record) for record in records]
        if rows:
            try:
                with self._engine.begin() as connection:
                    connection.execute(_RECORDS.insert(), rows)
            except SQLAlchemyError as error:
                raise EdgeError(f"record store {self._url}: {_reason(error)}") from error
        return len(rows)

    def best(self, workload_hash: str, profile: dict[str, Any]) -> Record | None:
        """The fastest record of a task on a profile in the present space version, or None."""
        query = (
            sql.select(_RECORDS.c.content)
            .where(_RECORDS.c.workload_hash == workload_hash, _RECORDS.c.profile_key == _key(profile))
            .order_by(_RECORDS.c.median_s, _RECORDS.c.id)
        )
        with self._engine.connect() as connection:
            for (content,) in connection.execute(query):
                if content["candidate"]["space_version"] == SPACE_VERSION:
                    return _record(content)
        return None

    def history(self, workload_hash: str, profile: dict[str, Any]) -> tuple[Record, ...]:
        """All records of a task on a profile, oldest first."""
        query = (
            sql.select(_RECORDS.c.content)
            .where(_RECORDS.c.workload_hash == workload_hash, _RECORDS.c.profile_key == _key(profile))
            .order_by(_RECORDS.c.id)
        )
        with self._engine.connect() as connection:
            return tuple(_record(content) for (content,) in connection.execute(query))

    def select(
        self, profile: Mapping[str, Any] | None = None, space_version: int | None = None
    ) -> Iterator[Record]:
        """Records of one profile, of one space version, or of both; oldest first, read in batches.

        Args:
            profile: as `profile_data` gives it; None takes every one.
            space_version: None takes every one.
        """
        query = sql.select(_RECORDS.c.content).order_by(_RECORDS.c.id)
        if profile is not None:
            query = query.where(_RECORDS.c.profile_key == _key(profile))
        with self._engine.connect() as connection:
            for (content,) in connection.execution_options(yield_per=_BATCH).execute(query):
                if space_version in (None, content["candidate"]["space_version"]):
                    yield _record(content)

    def __iter__(self) -> Iterator[Record]:
        """Every record, oldest first."""
        return self.select()

    def export(self, path: Path) -> int:
        """Write every record as one line of JSON; returns how many."""
        count = 0
        with path.open("w", encoding="utf-8") as file:
            for record in self:
                file.write(json.dumps(_content(record), sort_keys=True) + "\n")
                count += 1
        return count

    def load(self, path: Path) -> int:
        """Append the records of an exported file; returns how many.

        Raises:
            EdgeError: a line is no record of this schema.
        """
        records = []
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                try:
                    content = json.loads(line)
                    if content["schema"] != SCHEMA:
                        raise ValueError(f"schema {content['schema']!r}")
                    records.append(_record(content))
                except (ValueError, KeyError, TypeError) as error:
                    raise EdgeError(f"{path}, line {number} is no record of {SCHEMA}: {error}") from error
        return self.append(records)


def _key(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _reason(error: SQLAlchemyError) -> str:
    return str(error).splitlines()[0]


def _row(record: Record) -> dict[str, Any]:
    return {
        "workload_hash": record.candidate.workload_hash,
        "profile_key": record.profile_key,
        "candidate_key": record.candidate_key,
        "median_s": record.measurement.median_s,
        "made_at": record.made_at,
        "content": _content(record),
    }


def _content(record: Record) -> dict[str, Any]:
    content = asdict(record)
    # JSON has no NaN: an estimate that the proposer did not make is null.
    if record.candidate.estimate_s != record.candidate.estimate_s:
        content["candidate"]["estimate_s"] = None
    return {"schema": SCHEMA, **content}


def _record(content: dict[str, Any]) -> Record:
    made = dict(content["candidate"])
    estimate = made.pop("estimate_s")
    decisions = tuple(
        (name, tuple(value) if isinstance(value, list) else value) for name, value in made.pop("decisions")
    )
    measured = dict(content["measurement"])
    times = tuple(measured.pop("times_s"))
    energy = Energy(**measured.pop("energy"))
    return Record(
        candidate=Candidate(
            decisions=decisions, estimate_s=float("nan") if estimate is None else estimate, **made
        ),
        profile=content["profile"],
        measurement=Measurement(times_s=times, energy=energy, **measured),
        made_at=content["made_at"],
        origin=content["origin"],
    )
