"""Records that hosts share: `python -m benchmarks.scale [--records 1000000] [--json F]`.

A PostgreSQL server of this machine, with its usual durability, is filled with records of 20 devices, 500
tasks each. Then, by the functions that commands use:

    best_ms         the best programs of all 50 tasks of a model, of other tasks each time
    batch_per_s     records a second of one writer that adds 500 at a time
    single_per_s    records a second of one writer that adds each by itself, as a tuning does
    bytes           of the database by record, indexes included, and of its parts

Rows that fill the database are made from the line of one record, with a task, a program and times of its own.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import sqlalchemy as sql

from benchmarks.result_file import add_json_option, heading, write_result
from benchmarks.scale.rows import DEVICES, TASKS, made_rows, some_record, task_name
from host.records import RecordStore
from host.records.database import BATCH, RECORDS, Database
from tests.postgres import Server
from tests.unit.records.samples import profile

SCHEMA = "edgetlm.scale/1"

_MODEL_TASKS = 50
_QUESTIONS, _WRITING_S = 40, 10.0
_RULE = ("matmul", 4)


def fill(url: str, count: int) -> float:
    """Fill an empty database; returns the seconds that it took."""
    begin = time.monotonic()
    done = 0
    database = Database(url)
    rows = made_rows(count)
    while batch := [row for _, row in zip(range(20 * BATCH), rows, strict=False)]:
        with database.writing() as connection:
            connection.execute(RECORDS.insert(), batch)
        done += len(batch)
        print(f"{done} of {count} records, {time.monotonic() - begin:.0f} s", file=sys.stderr)
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        # What autovacuum does within minutes: an answer out of the index alone needs it.
        connection.execute(sql.text("VACUUM ANALYZE records"))
    database.engine.dispose()
    return time.monotonic() - begin


def best_ms(url: str) -> dict[str, float]:
    """Milliseconds of asking for the best programs of a model, of random tasks and devices."""
    draw = random.Random(3)
    spent = []
    with RecordStore(url) as store:
        for _ in range(_QUESTIONS):
            tasks = {task_name(number): _RULE for number in draw.sample(range(TASKS), _MODEL_TASKS)}
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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="benchmarks.scale", description="Figures of records in PostgreSQL.")
    parser.add_argument("--records", type=int, default=1_000_000, help="how many the database holds")
    add_json_option(parser)
    options = parser.parse_args()
    about = heading("benchmarks.scale", SCHEMA)
    server = Server(durable=True)
    try:
        url = server.url(server.database())
        filled_s = fill(url, options.records)
        figures = {
            "records": options.records,
            "devices": DEVICES,
            "tasks": TASKS,
            "model_tasks": _MODEL_TASKS,
            "filled_s": filled_s,
            "bytes_per_record": sizes(url),
            "best_ms": best_ms(url),
            "batch_per_s": written_per_s(url, BATCH),
            "single_per_s": written_per_s(url, 1),
        }
    finally:
        server.remove()
    print(json.dumps(figures, indent=1))
    write_result(options.json, {**about, **figures})


if __name__ == "__main__":
    main()
