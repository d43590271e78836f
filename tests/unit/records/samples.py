"""Records to keep, and a database as the first version of the store laid it out."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy as sql
from alembic import command
from alembic.config import Config

from host.model import Candidate, DeviceProfile, Energy, Measurement
from host.records import Record, profile_data
from host.records.database import row_of
from host.records.record import content_of, line_of
from targets import Board, board_for, declared


def profile(threads: int = 1, device: str = "desk") -> dict[str, Any]:
    return profile_data(DeviceProfile(device, _board(), _board().hardware, threads))


@cache
def _board() -> Board:
    board = board_for(declared()["x86_64-v3"])
    assert board is not None
    return board


def record(
    milliseconds: float, tile: int = 4, threads: int = 1, proposer: str = "gensor", task: str = "task"
) -> Record:
    decisions = (("rows", (tile, 8)), ("unroll", 16))
    candidate = Candidate(task, "matmul", decisions, proposer, math.nan if tile == 4 else 1e-3, 4)
    energy = Energy("measured", 0.25, 0.125, "rapl", "package")
    times = (milliseconds * 1e-3,) * 3
    return Record(candidate, profile(threads), Measurement(times, energy, {"load": 1}, {}, threads))


def failure(reason: str = "no registers left", tile: int = 2) -> Record:
    return Record.failed(record(1.0, tile=tile).candidate, profile(), reason)


def same(a: Record, b: Record) -> bool:
    """Equal, where an estimate that was not made equals another."""

    def plain(one: Record) -> dict[str, Any]:
        content = asdict(one)
        if math.isnan(one.candidate.estimate_s):
            content["candidate"]["estimate_s"] = None
        return content

    return plain(a) == plain(b)


def version_1(path: Path, records: Sequence[Record]) -> None:
    """Write a database without a version, with the tables and lines of that time."""
    connection = sqlite3.connect(path)
    connection.execute(
        "CREATE TABLE records (id INTEGER NOT NULL, workload_hash VARCHAR(64) NOT NULL, "
        "profile_key VARCHAR(64) NOT NULL, candidate_key VARCHAR(64) NOT NULL, median_s FLOAT NOT NULL, "
        "made_at VARCHAR(40) NOT NULL, content JSON NOT NULL, PRIMARY KEY (id))"
    )
    connection.execute("CREATE INDEX by_task ON records (workload_hash, profile_key, median_s)")
    for one in records:
        connection.execute(
            "INSERT INTO records (workload_hash, profile_key, candidate_key, median_s, made_at, content) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (
                one.candidate.workload_hash,
                one.profile_key,
                one.candidate_key,
                one.measurement.median_s,
                one.made_at,
                json.dumps(line_1(one)),
            ),
        )
    connection.commit()
    connection.close()


# As the program made them before it had alembic.
_VERSION_2 = """
CREATE TABLE meta (name VARCHAR(64) NOT NULL, value VARCHAR(64) NOT NULL, PRIMARY KEY (name));
INSERT INTO meta VALUES ('schema_version', '2');
CREATE TABLE records (id {number}, record_key VARCHAR(64) NOT NULL, workload_hash VARCHAR(64) NOT NULL,
    profile_key VARCHAR(64) NOT NULL, candidate_key VARCHAR(64) NOT NULL, space_version INTEGER NOT NULL,
    median_s FLOAT, made_at VARCHAR(40) NOT NULL, content TEXT NOT NULL, PRIMARY KEY (id),
    UNIQUE (record_key));
CREATE INDEX records_by_task ON records (workload_hash, profile_key, space_version, median_s);
CREATE INDEX records_by_profile ON records (profile_key, space_version, id);
CREATE TABLE foreign_workloads (workload_key VARCHAR(64) NOT NULL, content TEXT NOT NULL,
    PRIMARY KEY (workload_key));
CREATE TABLE foreign_records (id {number}, record_key VARCHAR(64) NOT NULL,
    workload_hash VARCHAR(64) NOT NULL,
    workload_key VARCHAR(64) NOT NULL, median_s FLOAT, content TEXT NOT NULL, PRIMARY KEY (id),
    UNIQUE (record_key), FOREIGN KEY(workload_key) REFERENCES foreign_workloads (workload_key))
"""
_COLUMNS_2 = (
    *("record_key", "workload_hash", "profile_key", "candidate_key", "space_version", "median_s", "made_at"),
    "content",
)


def version_2(place: str | Path, records: Sequence[Record]) -> None:
    """Write a database with the tables of version 2."""
    url = sql.URL.create("sqlite", database=str(place)) if isinstance(place, Path) else place
    if isinstance(place, Path):
        place.parent.mkdir(exist_ok=True)
    engine = sql.create_engine(url)
    number = "INTEGER NOT NULL" if isinstance(place, Path) else "SERIAL NOT NULL"
    table = sql.table("records", *map(sql.column, _COLUMNS_2))
    with engine.begin() as connection:
        for statement in _VERSION_2.format(number=number).split(";"):
            connection.exec_driver_sql(statement)
        rows = [row_of(one, line_of(one)) for one in records]
        connection.execute(table.insert(), [{name: row[name] for name in _COLUMNS_2} for row in rows])
    engine.dispose()


def version_3(place: str | Path, records: Sequence[Record]) -> None:
    """Write a database of revision 3, as its migrations leave it."""
    url = sql.URL.create("sqlite", database=str(place)) if isinstance(place, Path) else place
    if isinstance(place, Path):
        place.parent.mkdir(exist_ok=True)
    engine = sql.create_engine(url)
    names = (*_COLUMNS_2, "rule", "measured_in")
    with engine.begin() as connection:
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", "host.records.database:migrations")
        command.upgrade(config, "0003")
        rows = [row_of(one, line_of(one)) for one in records]
        table = sql.table("records", *map(sql.column, names))
        connection.execute(table.insert(), [{name: row[name] for name in names} for row in rows])
    engine.dispose()


def line_1(one: Record) -> dict[str, Any]:
    """A record as the first version of the store wrote it."""
    content: dict[str, Any] = {**content_of(one), "schema": "edgetlm.record/1"}
    del content["failure"]
    return content
