"""A real server: what it refuses is one line, and one that comes back costs nothing that was measured."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sql

import host
from device_agent.contract.limits import LIMITS
from device_agent.contract.text import is_printable
from host.errors import EdgeError
from host.records import Record, RecordStore
from host.records.database import RECORDS, ServerAway, row_of
from host.records.record import line_of
from sdk.cli.main import main
from tests.servers.postgres import PASSWORD, Server
from tests.unit.records.samples import profile, record, same

ROOT = Path(host.__file__).parents[1]


def refusal(url: str) -> str:
    with pytest.raises(EdgeError) as caught, RecordStore(url) as store:
        store.append([record(1.0)])
    text = str(caught.value)
    assert is_printable(text) and PASSWORD not in text and "wrong+word" not in text
    return text


def test_what_a_server_refuses_is_said_in_one_line(server: Server, tmp_path: Path) -> None:
    database = server.database()
    assert "refuses this user's password: correct it in ~/.pgpass" in refusal(
        server.url(database, password="wrong+word")
    )
    nobody = refusal(f"postgresql+psycopg://{'keeper'}@/{database}?host={server.folder}")
    assert "wants a password: put it into ~/.pgpass" in nobody
    assert "no such database or user: correct the URL" in refusal(server.url("nosuchdatabase"))
    away = "does not answer: is it on, and are host and port right?"
    assert away in refusal(f"postgresql+psycopg://keeper:wrong+word@/x?host={tmp_path}")
    assert away in refusal("postgresql+psycopg://keeper:wrong+word@127.0.0.1:1/x")
    assert "no such host" in refusal("postgresql+psycopg://keeper:wrong+word@nowhere.invalid/x")


def test_without_its_driver_the_extra_is_named(shared: str) -> None:
    program = (
        "import sys\n"
        "sys.modules['psycopg'] = None\n"
        "from host.records import RecordStore\n"
        "RecordStore(sys.argv[1])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, shared], capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1].endswith(
        "the driver of PostgreSQL is missing: install it with pip install 'edgetlm[postgres]'"
    )


def test_a_password_is_in_nothing_that_a_command_writes(
    shared: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with RecordStore(shared) as store:
        store.append([record(1.0)])
    assert main(["records", "list", "--records", shared, "-o", "json"]) == 0
    assert main(["records", "export", str(tmp_path / "r.jsonl"), "--records", shared]) == 0
    assert main(["records", "upgrade", "--records", shared]) == 0
    assert main(["fleet", "status", "--records", shared, "--verbose"]) == 0
    assert main(["records", "list", "--records", shared.replace("keeper", "nobody"), "--verbose"]) == 1
    out, err = capsys.readouterr()
    word = shared.split(":")[2].partition("@")[0]
    for text in (out, err, (tmp_path / "r.jsonl").read_text()):
        assert PASSWORD not in text and word not in text


@pytest.fixture
def stocked(shared: str) -> Iterator[RecordStore]:
    with RecordStore(shared) as store:
        store.append([record(3.0), record(2.0, tile=8)])
        yield store


def _change(store: RecordStore, statement: str, **values: object) -> None:
    with store._database.writing() as connection:
        connection.execute(sql.text(statement), values)


def test_rows_of_a_stranger_are_read_by_the_rules_for_imports(stocked: RecordStore) -> None:
    tomorrow = replace(record(0.5, tile=16), made_at="2999-01-01T00:00:00+00:00")
    twice = line_of(record(0.4, tile=32)).replace('"threads": 1', '"threads": 1, "threads": 1', 1)
    assert json.loads(twice)
    for key, line in (
        ("a", line_of(tomorrow)),
        ("b", line_of(record(0.3, tile=2)).replace("0.0003", "-1.0")),
    ):
        with stocked._database.writing() as connection:
            row = {**row_of(record(0.2, tile=64), line), "record_key": key}
            connection.execute(RECORDS.insert(), row)
    best = stocked.best("task", profile())
    assert best is not None and best.median_s == 2e-3
    found = stocked.best_of({"task": ("matmul", 4)}, profile())["task"]
    assert same(found, best)
    _change(stocked, "UPDATE records SET content = :twice WHERE id = 1", twice=twice)
    with pytest.raises(EdgeError, match="row 1 is damaged"):
        list(stocked)


def test_a_row_of_any_size_is_not_sent(stocked: RecordStore) -> None:
    _change(stocked, f"UPDATE records SET content = repeat('x', {LIMITS.records.row_bytes + 1}) WHERE id = 2")
    with pytest.raises(EdgeError, match="a row that is larger than any record"):
        list(stocked)


def test_rows_are_in_memory_by_size_and_not_by_number(
    stocked: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    stocked.append([record(5.0 + number) for number in range(20)])
    whole = [one.median_s for one in stocked]
    size = len(line_of(record(1.0)))
    records = LIMITS.records._replace(batch_bytes=3 * size)
    monkeypatch.setattr("host.records.row_reader.LIMITS", LIMITS._replace(records=records))
    sent: list[int] = []
    rows = stocked._reader.rows

    def counted(*arguments):
        found = rows(*arguments)
        sent.append(len(found))
        return found

    monkeypatch.setattr(stocked._reader, "rows", counted)
    assert [one.median_s for one in stocked] == whole
    assert max(sent) <= 4


def test_tables_that_hold_more_than_ours_are_refused(shared: str, stocked: RecordStore) -> None:
    _change(stocked, "ALTER TABLE records ALTER COLUMN workload_hash TYPE text")
    with pytest.raises(EdgeError, match="the column workload_hash of records is missing or not as ours"):
        RecordStore(shared)


def test_a_record_with_a_wrong_date_is_not_kept_where_nobody_would_read_it(stocked: RecordStore) -> None:
    wrong = replace(record(1.0), made_at="1970-01-01T00:00:00+00:00")
    with pytest.raises(EdgeError, match=r"a date of 1970-01-01.*when this machine's clock is right"):
        stocked.append([wrong])


def test_two_writers_of_the_same_records_both_go_on(shared: str) -> None:
    """Where one has not committed yet, the other waits, and adds nothing twice."""
    both = [record(1.0 + number) for number in range(20)]
    counts: list[int] = []
    with RecordStore(shared) as store, RecordStore(shared) as other:
        with store._database.writing() as connection:
            connection.execute(RECORDS.insert(), [row_of(one, line_of(one)) for one in both])
            thread = threading.Thread(target=lambda: counts.append(other.append(both)))
            thread.start()
            time.sleep(0.2)
            assert not counts
        thread.join(30)
        assert counts == [0]
        assert len(list(store)) == 20


# -- a server that goes away


def test_a_server_that_crashes_and_comes_back_costs_nothing(server: Server, shared: str) -> None:
    with RecordStore(shared) as store:
        kept = [record(1.0 + number) for number in range(8)]
        store.append(kept[:3])
        server.kill()
        back = threading.Timer(1.0, server.start)
        back.start()
        assert store.append(kept) == 5
        back.join()
        server.kill()
        back = threading.Timer(1.0, server.start)
        back.start()
        assert len(list(store)) == 8
        back.join()


def test_a_server_that_stays_away_ends_it_after_a_while(
    server: Server, shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("host.records.database.access.PATIENCE_S", 0.5)
    with RecordStore(shared) as store:
        server.kill()
        try:
            with pytest.raises(ServerAway, match=r"does not answer.*\(it was tried for 0.5 s\)"):
                store.append([record(1.0)])
        finally:
            server.start()


def test_a_server_that_stands_still_is_given_up_and_asked_anew(
    shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a proxy that stalls: what is sent is acknowledged, and nothing is answered."""
    monkeypatch.setattr("host.records.database.engine.ANSWER_S", 0.5)
    asked = sql.text(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    with RecordStore(shared) as store, RecordStore(shared) as other:
        both = [record(1.0), record(2.0)]
        assert store.append(both[:1]) == 1
        with other._database.reading() as connection:
            standing = connection.execute(asked).scalars().all()
        for number in standing:
            os.kill(number, signal.SIGSTOP)
        try:
            assert store.append(both) == 1
        finally:
            for number in standing:
                os.kill(number, signal.SIGCONT)
        assert len(list(store)) == 2


@pytest.mark.parametrize("hours", [-1, 1])
def test_an_hour_that_a_host_is_off_costs_no_record(stocked: RecordStore, hours: int) -> None:
    before = len(list(stocked))
    wrong = (datetime.now(UTC) + timedelta(hours=hours)).isoformat()
    assert stocked.append([replace(record(9.0), made_at=wrong)]) == 1
    assert len(list(stocked)) == before + 1


# -- roles


def _statements(text: str) -> list[str]:
    return re.findall(r"```sql\n(.*?)```", text, re.S)


def test_the_documented_roles_may_do_what_they_are_for(server: Server) -> None:
    database = server.database()
    as_administrator, as_owner = (
        text.replace("DATABASE records", f"DATABASE {database}")
        for text in _statements((ROOT / "docs" / "records.md").read_text())
    )
    word = PASSWORD.replace("'", "''")
    server.execute(as_administrator.replace("'a password'", f"'{word}'"), database)
    owner, anna, ben = (server.url(database, name) for name in ("edgetlm_owner", "anna", "ben"))
    # Whoever may only write or read makes no tables.
    assert "may not do this" in refusal(anna)
    assert main(["records", "upgrade", "--records", owner]) == 0
    server.execute(as_owner, database, "edgetlm_owner")
    with RecordStore(anna) as writer, RecordStore(ben) as reader:
        assert writer.append([record(1.0)]) == 1
        assert same(next(iter(reader)), next(iter(writer)))
        with pytest.raises(
            EdgeError, match=r"your role may not do this: docs/records\.md says what a writer"
        ):
            reader.append([record(2.0)])
        # Records are added and never changed.
        for statement in ("UPDATE records SET median_s = 0", "DELETE FROM records", "DROP TABLE records"):
            with pytest.raises(EdgeError, match="your role may not do this"):
                _change(writer, statement)
    _leases_of(anna, ben)


def _leases_of(writer: str, reader: str) -> None:
    from host.leases import LeaseTable, Request

    request = Request("board", "pi5", "anna@desk", "tune", "1")
    with LeaseTable(writer) as table, LeaseTable(reader) as looking:
        assert table.take(request) is None
        assert table.renew([request])
        assert [one.owner for one in looking.status()] == ["anna@desk"]
        with pytest.raises(EdgeError, match="your role may not do this"):
            looking.take(replace(request, ticket="2"))
        assert table.release_by_force("pi5", "ben@desk").owner == "anna@desk"
        table.release(request)


def test_a_copy_goes_on_where_it_was_cut_off(
    tmp_path: Path, shared: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sdk.management.records._COPIED_TOGETHER", 7)
    source = tmp_path / "records.sqlite"
    old: Record = replace(record(1.0), made_at="1970-01-01T00:00:00+00:00")
    with RecordStore(source) as store:
        store.append([record(1.0 + number) for number in range(20)])
        store.append([old])
    assert main(["records", "copy", str(source), shared]) == 0
    out = capsys.readouterr().out
    assert "20 of 21 records are new" in out and "1 records say what no measurement says" in out
    assert main(["records", "copy", str(source), shared]) == 0
    assert "0 of 21 records are new" in capsys.readouterr().out
    with RecordStore(source) as store, RecordStore(shared) as copy:
        assert all(same(a, b) for a, b in zip(copy, store, strict=False))
    assert main(["records", "copy", str(tmp_path / "none.sqlite"), shared]) == 2
