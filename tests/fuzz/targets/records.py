"""Records of measurements: files of lines, SQLite files, and databases in MetaSchedule's form."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from random import Random

from device_agent.contract.limits import LIMITS
from host.errors import EdgeError
from host.records import RecordStore
from host.records.json_lines import Refused
from tests.fuzz.case import Case, Outcome, Tree, complaint
from tests.fuzz.corpus import records as found
from tests.fuzz.mutate import TEXTS, grown, mangled, written

_KINDS = ("lines", "lines", "lines", "sqlite", "sqlite", "metaschedule")
_STATEMENTS = (
    "UPDATE records SET content = ?",
    "UPDATE records SET median_s = ?",
    "UPDATE records SET workload_hash = ?",
    "UPDATE records SET space_version = ?",
    "UPDATE records SET id = id + 9223372036854775000, made_at = ?",
    "UPDATE meta SET value = ?",
    "INSERT INTO foreign_workloads VALUES ('k', ?)",
    "INSERT INTO foreign_records VALUES (1, 'r', 'w', 'k', ?, 'x')",
)
_TABLES = (
    "DROP TABLE meta",
    "DROP TABLE records",
    "ALTER TABLE records ADD COLUMN extra TEXT DEFAULT 'x'",
    "CREATE TRIGGER t AFTER INSERT ON records BEGIN DELETE FROM records; END",
    "CREATE VIEW v AS SELECT * FROM records",
    "PRAGMA user_version = 99",
    "PRAGMA journal_mode = WAL",
)


class Records:
    """The target: the first file's name is the kind of the case."""

    name = "records"
    apart = False

    def open(self, place: Path) -> None:
        """A folder with what may be written to, and one that may not."""
        self._place = place
        (place / "outside").mkdir()
        os.chdir(place / "outside")
        self._tree = Tree(place / "outside")

    def close(self) -> None:
        """Nothing is left running."""

    def corpus(self) -> list[Case]:
        """Everything that was a fault once."""
        return found.cases()

    def case(self, seed: int) -> Case:
        """Records of which some are changed."""
        rng = Random(f"records/{seed}")
        kind = rng.choice(_KINDS)
        files = {"lines": _lines, "sqlite": _sqlite, "metaschedule": _metaschedule}[kind](rng)
        return Case(f"{kind}-{seed}", files)

    def run(self, case: Case) -> Outcome:
        """Read them all; none that cannot be is the fastest."""
        shutil.rmtree(self._place / "work", ignore_errors=True)
        path = case.write(self._place / "work")
        try:
            wrong = _READ[path.name.partition(".")[0]](path)
        except EdgeError as error:
            return Outcome("refused", str(error), complaint(str(error)) or self._tree.violation())
        return Outcome("ok", violation=wrong or self._tree.violation())


def _read_lines(path: Path) -> str:
    refused = Refused()
    with RecordStore(path.parent / "store.sqlite") as store:
        store.load(path, refused)
        wrong = _implausible(store)
    return wrong or (complaint(str(refused)) if refused.count else "")


def _read_sqlite(path: Path) -> str:
    with RecordStore(path) as store:
        return _implausible(store)


def _read_metaschedule(path: Path) -> str:
    from host.lowering.tasks import workload_hash
    from host.records.metaschedule import import_database

    imported = import_database(path.parent, found.spaces(), found.profile(), workload_hash)
    times = [time for record in imported.records for time in record.measurement.times_s]
    times += [one.median_s for one in imported.foreign if one.median_s is not None]
    return _beyond(times)


_READ: dict[str, Callable[[Path], str]] = {
    "lines": _read_lines,
    "sqlite": _read_sqlite,
    "database_workload": _read_metaschedule,
}


def _implausible(store: RecordStore) -> str:
    """Whether a store gives out what no measurement says."""
    times = [time for record in store for time in record.measurement.times_s]
    for summary in store.summaries():
        times += summary.best.measurement.times_s
    for one in store.foreign_summaries():
        times += [one.best_s] if one.best_s is not None else []
    list(store.foreign())
    best = [store.best("task", found.profile())]
    best += store.best_of(dict.fromkeys(("task", "other"), ("matmul", 4)), found.profile()).values()
    return _beyond([*times, *(time for one in best if one for time in one.measurement.times_s)])


def _beyond(times: list[float]) -> str:
    for time in times:
        if not LIMITS.records.shortest_s <= time <= LIMITS.records.longest_s:
            return f"a time of {time} s is taken"
    return ""


def _lines(rng: Random) -> dict[str, bytes]:
    lines = [line.encode() for line in found.lines()]
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(len(lines))
        if rng.random() < 0.3:
            lines[at] = mangled(rng, lines[at])
        else:
            lines[at] = written(rng, grown(rng, json.loads(found.lines()[at])))
    return {"lines": rng.choice((b"\n", b"\n", b"\n", b"\r\n", b"\n\n")).join(lines) + b"\n"}


def _sqlite(rng: Random) -> dict[str, bytes]:
    data = found.database()
    if rng.random() < 0.5:
        return {"sqlite": mangled(rng, data, steps=rng.choice((1, 3, 20, 100)))}
    with sqlite3.connect(":memory:") as connection:
        connection.deserialize(data)
        for _ in range(rng.choice((1, 1, 2))):
            try:
                if rng.random() < 0.3:
                    connection.execute(rng.choice(_TABLES))
                else:
                    content = written(rng, grown(rng, json.loads(rng.choice(found.lines()))))
                    text = content.decode("utf-8", "replace")
                    value = rng.choice((text, text, content, 0, -1.0, 1e-30, float("inf"), None, *TEXTS))
                    if isinstance(value, str):
                        value = value.encode("utf-8", "replace").decode()
                    connection.execute(rng.choice(_STATEMENTS), (value,))
            except (sqlite3.Error, OverflowError):
                continue  # the database has no place for it
        connection.commit()
        return {"sqlite": connection.serialize()}


def _metaschedule(rng: Random) -> dict[str, bytes]:
    files = found.metaschedule()
    name = rng.choice(sorted(files))
    lines = files[name].splitlines()
    at = rng.randrange(len(lines))
    if rng.random() < 0.4:
        lines[at] = mangled(rng, lines[at])
    else:
        lines[at] = written(rng, grown(rng, json.loads(lines[at])))
    changed = {**files, name: b"\n".join(lines) + b"\n"}
    return {one: changed[one] for one in sorted(changed, reverse=True)}
