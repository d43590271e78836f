"""The database: its writers, and what happens where it refuses."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sql

from host.errors import EdgeError, UserError
from host.records import RecordStore
from host.records.database import BATCH, RECORDS
from tests.unit.records.samples import record, version_1

# Starts when the file "go" appears, so that both processes open the store at the same time.
WRITER = """
import sys, time
from pathlib import Path
from host.records import RecordStore
from tests.unit.records.samples import record
place, folder, name = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
(folder / f"ready {name}").touch()
while not (folder / "go").exists():
    time.sleep(0.001)
with RecordStore(place) as store:
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
    until = time.monotonic() + 60
    while not all((folder / f"{one} {number}").exists() for one in "ab"):
        assert time.monotonic() < until, "the other ended"
    with RecordStore(folder / f"{number}.sqlite") as store:
        assert list(store) == []
"""


def _write_at_once(place: str | Path, folder: Path) -> None:
    names = ("gensor", "tlm")
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(place), str(folder), name], stderr=subprocess.PIPE, text=True
        )
        for name in names
    ]
    while not all((folder / f"ready {name}").exists() for name in names):
        assert all(process.poll() is None for process in processes)
    (folder / "go").touch()
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors


def test_two_processes_make_a_store_and_write_it_at_once(tmp_path: Path, place: str | Path) -> None:
    _write_at_once(place, tmp_path)
    with RecordStore(place) as store:
        proposers = [one.candidate.proposer for one in store]
    assert sorted(proposers) == ["gensor"] * 40 + ["tlm"] * 40


def test_two_processes_upgrade_a_store_and_write_it_at_once(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    version_1(path, [record(1.0 + number) for number in range(BATCH)])
    _write_at_once(path, tmp_path)
    with RecordStore(path) as store:
        assert len(list(store)) == BATCH + 80


def test_neither_reader_nor_writer_waits_for_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("host.records.database.engine.BUSY_S", 0.05)
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


def test_a_damaged_file_is_said_to_be_damaged(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    with RecordStore(path) as store:
        store.append(record(1.0 + number) for number in range(50))
    content = bytearray(path.read_bytes())
    content[4096:] = bytes(len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(EdgeError, match="the file is damaged: restore it"), RecordStore(path) as store:
        list(store)


def test_a_writer_that_is_killed_leaves_whole_additions(place: str | Path) -> None:
    program = (
        "import sys\n"
        "from host.records import RecordStore\n"
        "from tests.unit.records.samples import record\n"
        "with RecordStore(sys.argv[1]) as store:\n"
        "    while True:\n"
        "        store.append([record(1.0), record(2.0), record(3.0)])\n"
    )
    with RecordStore(place) as store:
        process = subprocess.Popen([sys.executable, "-c", program, str(place)])
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
    monkeypatch.setattr("host.records.database.engine.BUSY_S", 0.05)
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


@pytest.mark.parametrize("url", ["mysql+pymysql://me@host/records", "mssql://me:hunter2@host/x"])
def test_a_database_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(UserError, match="records are kept in SQLite or PostgreSQL") as caught:
        RecordStore(url)
    assert "hunter2" not in str(caught.value)


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
