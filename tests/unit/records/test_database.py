"""The database: its versions, its writers, and what happens where it refuses."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sql
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.schema import CreateIndex, CreateTable

from host.errors import EdgeError
from host.records import RecordStore
from host.records.database import BATCH, METADATA, RECORDS
from tests.unit.records.samples import profile, record, same, version_1

# Starts when the file "go" appears, so that both processes open the store at the same time.
WRITER = """
import sys, time
from pathlib import Path
from host.records import RecordStore
from tests.unit.records.samples import record
path, name = Path(sys.argv[1]), sys.argv[2]
(path.parent / f"ready {name}").touch()
while not (path.parent / "go").exists():
    time.sleep(0.001)
with RecordStore(path) as store:
    for number in range(20):
        assert store.append([record(1.0 + number, proposer=name), record(2.0, proposer=name)]) == 2
        assert store.best("task", record(1.0).profile) is not None
"""

MAKER = """
import sys, time
from pathlib import Path
from host.records import RecordStore
folder, name = Path(sys.argv[1]), sys.argv[2]
for number in range(100):
    (folder / f"{name} {number}").touch()
    until = time.monotonic() + 30
    while not all((folder / f"{one} {number}").exists() for one in "ab"):
        assert time.monotonic() < until, "the other ended"
    with RecordStore(folder / f"{number}.sqlite") as store:
        assert list(store) == []
"""


def _write_at_once(path: Path) -> None:
    names = ("gensor", "tlm")
    processes = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), name], stderr=subprocess.PIPE, text=True)
        for name in names
    ]
    while not all((path.parent / f"ready {name}").exists() for name in names):
        assert all(process.poll() is None for process in processes)
    (path.parent / "go").touch()
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors


def test_two_processes_make_a_store_and_write_it_at_once(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    _write_at_once(path)
    with RecordStore(path) as store:
        proposers = [one.candidate.proposer for one in store]
    assert sorted(proposers) == ["gensor"] * 40 + ["tlm"] * 40


def test_two_processes_upgrade_a_store_and_write_it_at_once(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    version_1(path, [record(1.0 + number) for number in range(BATCH)])
    _write_at_once(path)
    with RecordStore(path) as store:
        assert len(list(store)) == BATCH + 80


def test_neither_reader_nor_writer_waits_for_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("host.records.database.BUSY_S", 0.05)
    path = tmp_path / "records.sqlite"
    with RecordStore(path) as store, RecordStore(path) as other:
        store.append([record(1.0)])
        with store._database.reading() as connection:
            assert connection.execute(sql.select(RECORDS.c.id)).all() == [(1,)]
            assert other.append([record(2.0)]) == 1
            assert connection.execute(sql.select(RECORDS.c.id)).all() == [(1,)]
        with other._database.writing() as connection:
            connection.execute(sql.delete(RECORDS))
            assert len(list(store)) == 2
        assert list(store) == []


def test_a_store_of_the_first_version_is_upgraded(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    # The last two are the same: one of them is kept.
    old = [record(3.0), *(record(4.0 + number, tile=8) for number in range(BATCH)), record(2.0, tile=16)]
    version_1(path, [*old, old[-1]])
    for _ in range(2):
        with RecordStore(path) as store:
            assert all(same(a, b) for a, b in zip(store, old, strict=True))
            best = store.best("task", profile())
            assert best is not None and best.candidate.value("rows") == (16, 8)
    with RecordStore(path) as store:
        assert store.append([old[0], record(1.0)]) == 1


def _dump(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    lines = list(connection.iterdump())
    connection.close()
    return lines


def test_a_store_that_cannot_be_upgraded_is_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    version_1(path, [record(1.0), record(2.0)])
    connection = sqlite3.connect(path)
    connection.execute("UPDATE records SET content = '{\"schema\": 7}' WHERE id = 2")
    connection.commit()
    connection.close()
    before = _dump(path)
    with pytest.raises(EdgeError, match="version 1 cannot be brought to version 2: row 2 is damaged"):
        RecordStore(path)
    assert _dump(path) == before


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (
            ["UPDATE meta SET value = '3'"],
            "is of schema version 3, this program reads version 2: .* --records; nothing was changed",
        ),
        (["UPDATE meta SET value = 'new'"], "is not a record store"),
        (["DELETE FROM meta"], "is not a record store"),
        (["DROP TABLE meta"], "is not a record store"),
        (["DROP TABLE meta", "CREATE TABLE meta (a INTEGER)"], "is not a record store"),
    ],
)
def test_a_store_of_another_version_is_left_as_it_is(
    tmp_path: Path, statements: list[str], message: str
) -> None:
    path = tmp_path / "records.sqlite"
    with RecordStore(path) as store:
        store.append([record(1.0)])
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    before = _dump(path)
    with pytest.raises(EdgeError, match=message):
        RecordStore(path)
    assert _dump(path) == before


def test_a_database_of_something_else_gets_no_tables(tmp_path: Path) -> None:
    path = tmp_path / "bookmarks.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE bookmarks (address TEXT)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(EdgeError, match="is not a record store"):
        RecordStore(path)
    assert path.read_bytes() == before


def test_a_store_that_cannot_be_opened_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("this is no database, and long enough to be seen as none" * 20)
    with pytest.raises(EdgeError, match="cannot be opened: it is no SQLite database"):
        RecordStore(tmp_path / "file")
    with pytest.raises(EdgeError, match="cannot be opened: its folder is missing"):
        RecordStore(f"sqlite:///{tmp_path}/nowhere/records.sqlite")
    with pytest.raises(EdgeError, match="cannot be opened: Can't load plugin"):
        RecordStore("nosuchdatabase://host/name")


def test_a_password_is_not_shown() -> None:
    url = "postgresql+nodriver://me:secret@host/records"
    with pytest.raises(EdgeError, match="cannot be opened") as raised:
        RecordStore(url)
    assert "secret" not in str(raised.value)


def test_a_store_that_may_only_be_read_is_read(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    with RecordStore(path) as store:
        store.append([record(1.0)])
    with RecordStore(f"sqlite:///file:{path}?mode=ro&uri=true") as store:
        assert len(list(store)) == 1
        with pytest.raises(EdgeError, match=r"records\.sqlite: it may only be read: make it writable"):
            store.append([record(2.0)])


def test_what_may_only_be_read_is_not_upgraded(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    version_1(path, [record(1.0)])
    with pytest.raises(EdgeError, match=r"records\.sqlite.* cannot be opened: it may only be read"):
        RecordStore(f"sqlite:///file:{path}?mode=ro&uri=true")


def test_a_damaged_file_is_said_to_be_damaged(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    with RecordStore(path) as store:
        store.append(record(1.0 + number) for number in range(50))
    content = bytearray(path.read_bytes())
    content[4096:] = bytes(len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(EdgeError, match="the file is damaged: restore it"), RecordStore(path) as store:
        list(store)


def test_a_writer_that_is_killed_leaves_whole_additions(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    program = (
        "import sys\n"
        "from host.records import RecordStore\n"
        "from tests.unit.records.samples import record\n"
        "with RecordStore(sys.argv[1]) as store:\n"
        "    while True:\n"
        "        store.append([record(1.0), record(2.0), record(3.0)])\n"
    )
    with RecordStore(path) as store:
        process = subprocess.Popen([sys.executable, "-c", program, str(path)])
        while len(list(store)) < 30:
            assert process.poll() is None
        process.kill()
        process.wait()
        found = [one.measurement.median_s for one in store]
        assert found == [1e-3, 2e-3, 3e-3] * (len(found) // 3)
        assert store.append([record(4.0)]) == 1


@pytest.fixture
def small_disk() -> Iterator[None]:
    """Every SQLite database is at its limit with 40 pages of 4 KiB."""

    def limit(connection: sqlite3.Connection, _: object) -> None:
        connection.execute("PRAGMA max_page_count = 40")

    sql.event.listen(sql.Engine, "connect", limit)
    yield
    sql.event.remove(sql.Engine, "connect", limit)


@pytest.mark.usefixtures("small_disk")
def test_a_full_disk_keeps_what_was_there(tmp_path: Path) -> None:
    with RecordStore(tmp_path / "records.sqlite") as store:
        store.append([record(1.0)])
        with pytest.raises(EdgeError, match=r"records\.sqlite: no space left: free some and run again"):
            store.append(record(2.0 + number) for number in range(BATCH))
        assert len(list(store)) == 1


def test_a_store_that_somebody_keeps_locked_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("host.records.database.BUSY_S", 0.05)
    path = tmp_path / "records.sqlite"
    with RecordStore(path) as store, RecordStore(path) as other, other._database.writing():
        with pytest.raises(EdgeError, match="another process has kept it"):
            store.append([record(1.0)])
        assert list(store) == []


def test_a_path_may_be_text_with_any_characters(tmp_path: Path) -> None:
    path = tmp_path / "a folder?b=c#100%" / "records.sqlite"
    for given in (path, str(path)):
        with RecordStore(given) as store:
            store.append([record(1.0)])
    with RecordStore(path) as store:
        assert len(list(store)) == 2


def test_a_database_in_memory_is_read_while_it_is_written() -> None:
    with RecordStore("sqlite://") as store:
        store.append([record(1.0)])
        for one in store:
            if one.measurement.median_s < 0.003:
                store.append([record(1e3 * one.measurement.median_s + 1)])
        assert len(list(store)) == 3


@pytest.mark.parametrize("dialect", [postgresql.dialect(), mysql.dialect()])
def test_other_databases_have_a_form_for_every_table(dialect: sql.Dialect) -> None:
    text = ""
    for table in METADATA.sorted_tables:
        text += str(CreateTable(table).compile(dialect=dialect))
        text += "".join(str(CreateIndex(index).compile(dialect=dialect)) for index in table.indexes)
    assert "TEXT(" not in text
    assert text.count("content") == 3


def test_stores_that_are_made_by_two_at_the_same_moment(tmp_path: Path) -> None:
    """The switch to write-ahead logging is refused at once, not waited for, while another makes it."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", MAKER, str(tmp_path), name], stderr=subprocess.PIPE, text=True
        )
        for name in "ab"
    ]
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
