"""Records in their right form, and those that were taken once though nothing measures so."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from host.records import RecordStore
from host.records.record import line_of
from tests.fuzz.case import Case
from tests.unit.records import samples

_TIMES = (
    "0.0",
    "-1.0",
    "1e-300",
    "Infinity",
    "-Infinity",
    "NaN",
    "1e999",
    "1e300",
    "1e17",
    '"0"',
    "null",
    "[0]",
)


def profile() -> dict[str, Any]:
    """That of all records here."""
    return samples.profile()


@functools.cache
def lines() -> tuple[str, ...]:
    """Some records as lines."""
    made = [samples.record(1.0), samples.record(2.0, tile=8), samples.record(0.5, task="other")]
    return tuple(line_of(one) for one in (*made, samples.failure()))


@functools.cache
def database() -> bytes:
    """A SQLite file with these records."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "store.sqlite")
        (Path(folder) / "lines").write_text("\n".join(lines()) + "\n")
        with RecordStore(path) as store:
            store.load(Path(folder, "lines"))
        import sqlite3

        # What it writes ahead is put into the file, which is without it then.
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")
        connection.close()
        return path.read_bytes()


@functools.cache
def metaschedule() -> Mapping[str, bytes]:
    """A database of MetaSchedule with records of ours and of stock rules."""
    from host.records.metaschedule import export_database
    from tests.unit.records import test_metaschedule as made

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "database")
        export_database(made.records(), (), spaces(), folder)
        return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@functools.cache
def spaces() -> Mapping[str, Any]:
    """The design spaces of the records of `metaschedule`."""
    from tests.unit.records import test_metaschedule as made

    return made.SPACES


@functools.cache
def cases() -> list[Case]:
    """One a fault."""
    line = lines()[0]
    found = {"deep": "[" * 200_000, "number": line.replace("[4, 8]", "[4, " + "9" * 5000 + "]")}
    for number, text in enumerate(_TIMES):
        found[f"time-{number}"] = line.replace("0.001, 0.001, 0.001", f"{text}, 0.001, 0.001")
    for number, text in enumerate(("1e999", "-1.0", "NaN", '"x"')):
        found[f"energy-{number}"] = line.replace("0.25", text)
    for number, text in enumerate(("9999-01-01T00:00:00", "x", "", "1970-01-01T00:00:00+00:00")):
        found[f"date-{number}"] = json.dumps({**json.loads(line), "made_at": text})
    found["escape"] = line.replace("gensor", "\\u001b]0;x\\u0007<script>")
    found["surrogate"] = line.replace("gensor", "\\ud800")
    found["threads"] = line.replace('"threads": 1', '"threads": 1000000000')
    assert all(text not in lines() for text in found.values()), "the records are written in another form"
    others = "\n".join(lines()[1:])
    made = [Case(f"lines-{name}", {"lines": f"{text}\n{others}\n".encode()}) for name, text in found.items()]
    # SQLite's own error quotes the name of the column then, which is no UTF-8.
    start = database().index(b"records_by_task")
    quoted = database()[:start] + database()[start:].replace(b"workload_hash", b"workload_has\xff", 1)
    assert quoted != database(), "the database is laid out in another way"
    return [*made, Case("sqlite-column-that-is-not-utf-8", {"sqlite": quoted})]
