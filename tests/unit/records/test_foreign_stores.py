"""Stores that somebody else wrote: nothing of them runs, sorts first, or fills the memory."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from device_agent.contract.limits import LIMITS
from device_agent.contract.text import is_printable
from host.errors import EdgeError
from host.records import Record, RecordStore
from host.records.database import store_name
from host.records.record import line_of
from sdk.cli.project import command_line
from tests.unit.records.samples import profile, record

# What a hostile file says of times, as SQLite takes them.
_TIMES = ("0.0", "-1.0", "1e-30", "9e999", "-9e999", "1e300", "'fast'", "x'00'")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "records.sqlite"
    with RecordStore(path) as store:
        store.append([record(3.0), record(2.0, tile=8)])
    return path


def _execute(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def _refusal(path: Path) -> str:
    with pytest.raises(EdgeError) as caught, RecordStore(path) as store:
        list(store)
        store.summaries()
    assert is_printable(str(caught.value))
    return str(caught.value)


@pytest.mark.parametrize("seconds", _TIMES)
def test_a_time_that_is_none_is_neither_the_best_nor_counted(path: Path, seconds: str) -> None:
    """Both where the column says so and where the record does."""
    other = line_of(record(1.0, tile=16)).replace("[0.001, 0.001, 0.001]", "[0.0, 0.0, 0.0]")
    columns = (
        "record_key, workload_hash, profile_key, candidate_key, space_version, median_s, made_at, content"
    )
    for key, median, content in (("a", seconds, line_of(record(1.0))), ("b", "1e-6", other)):
        connection = sqlite3.connect(path)
        connection.execute(
            f"INSERT INTO records ({columns}) SELECT ?, workload_hash, profile_key, candidate_key,"
            f" space_version, {median}, made_at, ? FROM records WHERE id = 1",
            (key, content),
        )
        connection.commit()
        connection.close()
    with RecordStore(path) as store:
        best = store.best("task", profile())
        assert best is not None and best.median_s == 0.002
        assert [one.median_s for one in store.select()] == [0.003, 0.002]
        assert all(one.median_s != 0.0 for one in store)
        (summary,) = store.summaries()
        assert summary.best.median_s == 0.002


def test_times_of_others_that_are_none_are_not_the_best_of_them(path: Path) -> None:
    _execute(path, "INSERT INTO foreign_workloads VALUES ('w', 'f')")
    for number, seconds in enumerate((*_TIMES, "1e-4")):
        _execute(
            path, f"INSERT INTO foreign_records VALUES ({number}, 'k{number}', 'task', 'w', {seconds}, 'c')"
        )
    with RecordStore(path) as store:
        (summary,) = store.foreign_summaries()
    assert summary.best_s == 1e-4


def test_a_record_of_others_without_its_function_is_left_out(path: Path) -> None:
    _execute(path, "INSERT INTO foreign_workloads VALUES ('w', 'f')")
    for number, key in enumerate("wxw"):
        _execute(
            path, f"INSERT INTO foreign_records VALUES ({number}, 'k{number}', 'task', '{key}', 1.0, 'c')"
        )
    with RecordStore(path) as store:
        assert [one.workload for one in store.foreign()] == ["f", "f"]


@pytest.mark.parametrize(
    ("statements", "what"),
    [
        (["CREATE TRIGGER evil AFTER INSERT ON records BEGIN DELETE FROM records; END"], "the trigger evil"),
        (["CREATE VIEW evil AS SELECT 1"], "the view evil"),
        (["DROP TABLE records", "CREATE VIEW records AS SELECT randomblob(1000000000)"], "the view records"),
        (["CREATE INDEX evil ON records (abs(median_s))"], "the index evil"),
        (
            ["DROP TABLE records", "CREATE TABLE records (id INTEGER, x AS (hex(zeroblob(100000000))))"],
            "the table records",
        ),
        (
            ["DROP TABLE records", "CREATE VIRTUAL TABLE records USING fts4(content)"],
            "the table records",
        ),
        (['CREATE VIEW "\x1b]0;x\x07" AS SELECT 1'], r"the view \x1b]0;x\x07"),
    ],
)
def test_a_store_with_more_than_tables_is_refused_before_it_is_asked(
    path: Path, statements: list[str], what: str
) -> None:
    _execute(path, *statements)
    before = path.read_bytes()
    assert f"holds {what}, as no store of ours does" in _refusal(path)
    assert path.read_bytes() == before


def test_a_row_of_any_size_is_not_read(path: Path) -> None:
    _execute(path, f"UPDATE records SET content = zeroblob({LIMITS.records.row_bytes * 2}) WHERE id = 2")
    assert "a row that is larger than any record" in _refusal(path)


def test_rows_are_in_memory_by_size_and_not_by_number(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RecordStore(path) as store:
        store.append([record(5.0 + number) for number in range(20)])
        size = len(line_of(record(1.0)))
        whole = [one.median_s for one in store]
        records = LIMITS.records._replace(batch_bytes=3 * size)
        monkeypatch.setattr("host.records.row_reader.LIMITS", LIMITS._replace(records=records))
        fetched: list[int] = []
        rows = store._reader.rows

        def counted(*arguments):
            found = rows(*arguments)
            fetched.append(len(found))
            return found

        monkeypatch.setattr(store._reader, "rows", counted)
        assert [one.median_s for one in store] == whole
        assert max(fetched) <= 4


@pytest.mark.parametrize("content", ["x'00ff'", "5", "'{}'", "'['", "'" + "[" * 100_000 + "'"])
def test_a_row_that_is_no_record_is_named(path: Path, content: str) -> None:
    _execute(path, f"UPDATE records SET content = {content} WHERE id = 2")
    assert "row 2 is damaged" in _refusal(path)


def test_text_that_is_none_is_said_to_be_none(path: Path) -> None:
    _execute(path, "UPDATE records SET content = CAST(x'ff' AS TEXT) WHERE id = 2")
    assert "it holds text that is none" in _refusal(path)


def test_a_measurement_that_is_none_is_not_kept(path: Path) -> None:
    with RecordStore(path) as store:
        with pytest.raises(EdgeError, match="a time of 0 s, which no program has; measure again"):
            store.append([record(4.0), record(0.0)])
        assert len(list(store)) == 2


def test_the_reason_of_a_failure_is_one_line_of_a_bounded_length(path: Path) -> None:
    made = Record.failed(record(1.0, tile=32).candidate, profile(), "\x1b[31mno\n" + "x" * 100_000)
    assert (
        is_printable(made.failure) and made.failure.startswith(r"\x1b[31mno x") and len(made.failure) < 5000
    )
    with RecordStore(path) as store:
        assert store.append([made]) == 1
        assert json.loads(line_of(list(store)[-1]))["failure"] == made.failure


SECRET_URLS = [
    "postgresql://bob:hunter2@127.0.0.1:1/x",
    "mysql://bob:hunter2@127.0.0.1/x",
    "nosuch://bob:hunter2@h/x",
    "http://bob:hunter2@h",
    "postgresql://bob:hunter2@[bad/x",
    "postgresql://bob:hunter2@h:port/x",
    "postgresql://h/x?user=bob&password=hunter2",
    "://bob:hunter2@h",
]


@pytest.mark.parametrize("url", SECRET_URLS)
def test_no_password_of_a_url_is_shown(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EdgeError) as caught:
        RecordStore(url)
    assert "hunter2" not in str(caught.value) and is_printable(str(caught.value))
    assert "hunter2" not in store_name(url)
    monkeypatch.setattr("sys.argv", ["/bin/sdk", "tune", "m", "--records", url, f"--records={url}"])
    command = command_line()
    assert "hunter2" not in command and command.startswith("sdk tune m --records ")
