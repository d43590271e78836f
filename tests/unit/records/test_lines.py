"""Records go out as lines and come in again, whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from host.errors import EdgeError, UserError
from host.records import RecordStore
from tests.unit.records.samples import failure, line_1, record, same


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    lines = tmp_path / "deep" / "records.jsonl"
    with RecordStore(tmp_path / "records.sqlite") as store:
        store.append([record(3.0), record(2.0, tile=8), failure()])
        assert store.export(lines) == 3
    return lines


def test_export_and_load_keep_everything(exported: Path, tmp_path: Path) -> None:
    assert json.loads(exported.read_text().splitlines()[0])["schema"] == "edgetlm.record/2"
    with RecordStore(tmp_path / "records.sqlite") as store, RecordStore(tmp_path / "copy.sqlite") as copy:
        assert copy.load(exported) == 3
        assert all(same(a, b) for a, b in zip(copy, store, strict=True))
    assert [path.name for path in exported.parent.iterdir()] == ["records.jsonl"]


def test_loading_again_adds_nothing(exported: Path, tmp_path: Path) -> None:
    with RecordStore(tmp_path / "records.sqlite") as store:
        assert store.load(exported) == 0
        assert len(list(store)) == 3


def test_lines_of_the_first_schema_are_read(tmp_path: Path) -> None:
    old = [record(3.0), record(2.0, tile=8)]
    lines = tmp_path / "old.jsonl"
    lines.write_text("".join(json.dumps(line_1(one)) + "\n" for one in old))
    with RecordStore(tmp_path / "copy.sqlite") as copy:
        assert copy.load(lines) == 2
        assert all(same(a, b) for a, b in zip(copy, old, strict=True))


def _changed(exported: Path, **changes: object) -> str:
    return json.dumps({**json.loads(exported.read_text().splitlines()[1]), **changes})


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda path: '{"schema": "other/1"}', "schema"),
        (lambda path: path.read_text().splitlines()[1][:200], "Invalid JSON"),
        (lambda path: "", "Invalid JSON"),
        (lambda path: _changed(path, schema="edgetlm.record/3"), "schema"),
        (lambda path: _changed(path, candidate=None), "candidate"),
        (lambda path: _changed(path, failure="but it has times"), "either times or a failure"),
        (lambda path: _changed(path, made_at="yesterday"), "made_at"),
        (lambda path: path.read_text().splitlines()[1].replace("0.002", "-0.002"), "times_s"),
        (lambda path: "\udcff", "utf-8"),
    ],
)
def test_a_damaged_file_is_refused_whole(exported: Path, tmp_path: Path, damage, reason: str) -> None:
    lines = exported.read_text().splitlines()
    lines[1] = damage(exported)
    exported.write_bytes("".join(line + "\n" for line in lines).encode("utf-8", "surrogateescape"))
    with RecordStore(tmp_path / "copy.sqlite") as copy:
        with pytest.raises(EdgeError, match=f"line 2 is no record.*{reason}.*nothing was imported") as raised:
            copy.load(exported)
        assert "\n" not in str(raised.value)
        assert list(copy) == []


def test_an_export_that_fails_leaves_the_file_of_before(exported: Path, tmp_path: Path) -> None:
    before = exported.read_bytes()
    with RecordStore(tmp_path / "records.sqlite") as store:
        with store._database.writing() as connection:
            connection.exec_driver_sql("UPDATE records SET content = '{}' WHERE id = 3")
        with pytest.raises(EdgeError, match="row 3 is damaged"):
            store.export(exported)
    assert exported.read_bytes() == before
    assert [path.name for path in exported.parent.iterdir()] == ["records.jsonl"]


def test_an_export_replaces_the_file_at_once(exported: Path, tmp_path: Path) -> None:
    before = exported.read_text()
    with RecordStore(tmp_path / "records.sqlite") as store, exported.open() as reading:
        store.append([record(1.0)])
        assert store.export(exported) == 4
        assert reading.read() == before, "whoever reads it goes on with the file of before"


def test_a_missing_file_is_said_to_be_missing(tmp_path: Path) -> None:
    with RecordStore(tmp_path / "records.sqlite") as store, pytest.raises(UserError, match="no such file"):
        store.load(tmp_path / "nothing.jsonl")
