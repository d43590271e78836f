"""Records that hosts share.

A PostgreSQL server of this machine, with its usual durability, is filled with records of 20 devices, 500
tasks each. Then, by the functions that commands use:

    best_ms         the best programs of all 50 tasks of a model, of other tasks each time
    best_again_ms   the same questions again, whose pages are in memory
    batch_per_s     records a second of one writer that adds 500 at a time
    single_per_s    records a second of one writer that adds each by itself, as a tuning does
    bytes           of the database by record, indexes included, and of its parts

Rows that fill the database are made from the line of one record, with a task, a program and times of its own.
"""

from __future__ import annotations

import hashlib
import json
import math
import multiprocessing
import random
import statistics
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sql

from host.execution.cores import usable_cores
from host.records import Record, RecordStore
from host.records.database import BATCH, RECORDS, Database, row_of
from host.records.record import key_of, line_of
from tests.servers.postgres import Server
from tests.unit.records.samples import profile, record

DEVICES, _TASKS, _MODEL_TASKS = 20, 500, 50
_QUESTIONS, _WRITING_S = 40, 10.0
_RULE = ("matmul", 4)
# Rows of a device are spread over the database, as those of devices that measure at the same time.
_TASK, _TILE, _TIME = "f" * 64, 4095, 123456.0
_UNIQUE = "records_record_key_key"
_SHOWN = 100_000
# In a kept folder: which database there is filled, with how many records, in how many seconds.
_FILLED = "filled.json"


def task_name(number: int) -> str:
    """The workload hash of the task with this number."""
    return hashlib.sha256(b"task %d" % number).hexdigest()


def some_record(threads: int) -> Record:
    """A record as long as those of a tuning: nine times, and the task in words."""
    one = record(_TIME, tile=_TILE, threads=threads, task=_TASK)
    words = tuple(f"word{number}" for number in range(60))
    measured = replace(one.measurement, times_s=one.measurement.times_s * 3)
    return replace(one, measurement=measured, origin=replace(one.origin, sentence=words, model="mobilenetv2"))


def made_rows(count: int, begin: int = 0) -> Iterator[dict[str, Any]]:
    """So many rows, whose lines are records; those with other numbers are other records.

    Args:
        count: how many.
        begin: number of the first one.
    """
    templates = []
    for threads in range(1, DEVICES + 1):
        one = some_record(threads)
        line = line_of(one)
        templates.append((one, row_of(one, line), line))
    names = [task_name(number) for number in range(_TASKS)]
    draw = random.Random(7 + begin)
    time_text = json.dumps(_TIME * 1e-3)
    for number in range(begin, begin + count):
        one, row, line = templates[number % DEVICES]
        task = names[number // DEVICES % _TASKS]
        tile = number // (DEVICES * _TASKS) + 1
        seconds = math.exp(draw.gauss(-7.0, 0.5))
        content = line.replace(_TASK, task).replace(str(_TILE), str(tile)).replace(time_text, repr(seconds))
        # As `Record` makes them: a row whose keys are not those of its line is not believed.
        values = one.candidate.decisions
        decisions = [[name, [tile, 8] if value == (_TILE, 8) else value] for name, value in values]
        program = key_of([task, one.candidate.rule, decisions, one.candidate.space_version])
        times = [seconds] * len(one.measurement.times_s)
        said = [program, one.candidate.proposer, row["profile_key"], one.made_at, times, ""]
        keys = {"record_key": key_of(said), "workload_hash": task, "candidate_key": program}
        yield {**row, **keys, "median_s": seconds, "content": content}


def fill(url: str, count: int) -> float:
    """Fill an empty database as a restored copy is: by COPY, with its indexes afterwards.

    A process for each core makes the rows.

    Returns:
        The seconds that it took.
    """
    begin = time.monotonic()
    database = Database(url)
    indexes = sorted(RECORDS.indexes, key=lambda index: str(index.name))
    with database.engine.begin() as connection:
        connection.execute(sql.text(f"ALTER TABLE records DROP CONSTRAINT {_UNIQUE}"))
        for index in indexes:
            index.drop(connection)
    parts = [(url, first, min(_SHOWN, count - first)) for first in range(0, count, _SHOWN)]
    workers = min(usable_cores(), len(parts))
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as processes:
        done = 0
        for copied in as_completed([processes.submit(_copy, *part) for part in parts]):
            done += copied.result()
            said = f"{done} of {count} records, {time.monotonic() - begin:.0f} s"
            print(said, file=sys.stderr, flush=True)
    with database.engine.begin() as connection:
        connection.execute(sql.text("SET LOCAL maintenance_work_mem = '1GB'"))
        connection.execute(sql.text(f"ALTER TABLE records ADD CONSTRAINT {_UNIQUE} UNIQUE (record_key)"))
        for index in indexes:
            index.create(connection)
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        # What autovacuum does within minutes: an answer out of the index alone needs it.
        connection.execute(sql.text("VACUUM ANALYZE records"))
    database.engine.dispose()
    return time.monotonic() - begin


def _copy(url: str, begin: int, count: int) -> int:
    """Copy rows into the table; returns how many."""
    names = [column.name for column in RECORDS.columns if column.name != "id"]
    database = Database(url)
    with database.engine.begin() as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        with driver.cursor().copy(f"COPY records ({', '.join(names)}) FROM STDIN") as copy:
            for row in made_rows(count, begin):
                copy.write_row([row[name] for name in names])
    database.engine.dispose()
    return count


def best_ms(url: str) -> dict[str, float]:
    """Milliseconds of asking for the best programs of a model, of random tasks and devices."""
    draw = random.Random(3)
    spent = []
    with RecordStore(url) as store:
        for _ in range(_QUESTIONS):
            tasks = {task_name(number): _RULE for number in draw.sample(range(_TASKS), _MODEL_TASKS)}
            device = profile(threads=draw.randrange(1, DEVICES + 1))
            begin = time.perf_counter()
            found = store.best_of(tasks, device)
            spent.append((time.perf_counter() - begin) * 1e3)
            assert len(found) == _MODEL_TASKS
    return {"median": statistics.median(spent), "greatest": max(spent), "first": spent[0]}


def written_per_s(url: str, together: int) -> float:
    """Records a second of one writer."""
    count = added = 0
    one = some_record(1)
    start = datetime.now(UTC) - timedelta(days=together)
    with RecordStore(url) as store:
        begin = time.monotonic()
        while time.monotonic() - begin < _WRITING_S:
            dates = [start + timedelta(microseconds=count + number) for number in range(together)]
            added += store.append([replace(one, made_at=date.isoformat()) for date in dates])
            count += together
        spent_s = time.monotonic() - begin
    assert added == count
    return count / spent_s


def sizes(url: str) -> dict[str, float]:
    """Bytes by record: of all, of the table with its long lines, and of each index."""
    database = Database(url)
    with database.reading() as connection:
        count = connection.execute(sql.select(sql.func.count()).select_from(RECORDS)).scalar_one()
        whole = connection.execute(sql.text("SELECT pg_database_size(current_database())")).scalar_one()
        table = connection.execute(sql.text("SELECT pg_table_size('records')")).scalar_one()
        named = "SELECT indexrelname, pg_relation_size(indexrelid) FROM pg_stat_user_indexes"
        named += " WHERE relname = 'records'"
        indexes = {str(name): int(size) for name, size in connection.execute(sql.text(named)).all()}
        length = connection.execute(sql.select(sql.func.avg(sql.func.length(RECORDS.c.content)))).scalar_one()
    database.engine.dispose()
    parts = {"database": whole, "table": table, **indexes}
    return {"line": float(length), **{name: size / count for name, size in parts.items()}}


def figures_of(records: int, kept: Path | None = None) -> dict[str, Any]:
    """Fill a database and ask it; see the docstring of the module.

    Args:
        records: how many the database holds.
        kept: folder of the server, whose database is filled once and stays; None removes a new one.
    """
    server = Server(durable=True, folder=kept)
    try:
        database, filled_s = _filled(server, records)
        url = server.url(database)
        return {
            "records": records,
            "devices": DEVICES,
            "tasks": _TASKS,
            "model_tasks": _MODEL_TASKS,
            "filled_s": filled_s,
            "bytes_per_record": sizes(url),
            "best_ms": best_ms(url),
            "best_again_ms": best_ms(url),
            "batch_per_s": written_per_s(url, BATCH),
            "single_per_s": written_per_s(url, 1),
        }
    finally:
        if kept is None:
            server.remove()
        else:
            server.stop("fast")


def _filled(server: Server, records: int) -> tuple[str, float]:
    """The database with so many records, and the seconds that it took to fill it."""
    path = server.folder / _FILLED
    if path.is_file():
        known = json.loads(path.read_text())
        if known["records"] == records:
            return str(known["database"]), float(known["seconds"])
    database = server.database()
    seconds = fill(server.url(database), records)
    path.write_text(json.dumps({"database": database, "records": records, "seconds": seconds}))
    return database, seconds
