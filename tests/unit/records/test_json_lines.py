"""Records go out as lines and come in again, whole or not at all."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from device_agent.contract.text import is_printable
from host.errors import EdgeError, UserError
from host.records import RecordStore
from sdk.cli.main import main
from tests.unit.records.samples import failure, line_1, profile, record, same


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    lines = tmp_path / "deep" / "records.jsonl"
    with RecordStore(tmp_path / "records.sqlite") as store:
        store.append([record(3.0), record(2.0, tile=8), failure()])
        assert store.export(lines) == 3
    return lines


def test_export_and_load_keep_everything(exported: Path, tmp_path: Path, place: str | Path) -> None:
    assert json.loads(exported.read_text().splitlines()[0])["schema"] == "edgetlm.record/2"
    with RecordStore(tmp_path / "records.sqlite") as store, RecordStore(place) as copy:
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


def _nested(depth: int) -> dict[str, object]:
    return {"a": _nested(depth - 1)} if depth else {}


def _deep(exported: Path, place: str, value: object) -> str:
    content = json.loads(exported.read_text().splitlines()[1])
    *folders, last = place.split(".")
    part = content
    for folder in folders:
        part = part[folder]
    part[last] = value
    return json.dumps(content)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        *(("measurement.times_s", [seconds]) for seconds in (0.0, -1.0, 1e-12, 1e5, 1e300)),
        *(("measurement.times_s", [seconds]) for seconds in (math.inf, -math.inf, math.nan)),
        ("measurement.times_s", [0.002] * 200_000),
        ("measurement.energy.gross_j", -1.0),
        ("measurement.energy.gross_j", math.inf),
        ("measurement.energy.above_idle_j", math.nan),
        ("measurement.energy.mean_w", 1e300),
        ("measurement.threads", 0),
        ("measurement.threads", 1_000_000),
        ("profile.threads", -1),
        ("profile.threads", "4"),
        ("candidate.decisions", [["rows", 1]] * 5000),
        ("candidate.decisions", [["rows", [1] * 200_000]]),
        ("candidate.rule", "\x1b]0;PWN\x07"),
        ("candidate.rule", "rule\n"),
        ("candidate.rule", "\u202erule"),
        ("candidate.rule", "r" * 1000),
        ("candidate.proposer", "\x1b[31m"),
        ("candidate.workload_hash", "a\n"),
        ("candidate.space_version", -1),
        ("origin.command", "x" * 100_000),
        ("made_at", "9999-12-31T00:00:00"),
        ("made_at", "1969-12-31T00:00:00"),
        ("made_at", "2026-99-99T00:00:00"),
    ],
)
def test_what_no_measurement_says_is_left_out_and_told(
    exported: Path, tmp_path: Path, place: str, value: object, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = exported.read_text().splitlines()
    lines.insert(1, _deep(exported, place, value))
    exported.write_text("".join(line + "\n" for line in lines))
    store = tmp_path / "copy.sqlite"
    assert main(["records", "import", str(exported), "--records", str(store)]) == 0
    told, count = capsys.readouterr().out.splitlines()
    assert told.startswith("left out: 1 record says what no measurement says (the first is line 2: ")
    assert count == "3 of 3 records are new" and is_printable(told)
    with RecordStore(store) as copy:
        best = copy.best("task", profile())
        assert best is not None and best.median_s == 0.002
        assert len(list(copy)) == 3


def test_a_file_of_nothing_else_is_refused(exported: Path, tmp_path: Path) -> None:
    exported.write_text(_deep(exported, "measurement.times_s", [0.0]) + "\n")
    with RecordStore(tmp_path / "copy.sqlite") as copy:
        with pytest.raises(EdgeError, match=r"line 1: a time of 0 s.*nothing was imported"):
            copy.load(exported)
        assert list(copy) == []


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
        (lambda path: "[" * 200_000, "Invalid JSON"),
        (lambda path: "\0" * 100, "Invalid JSON"),
        (lambda path: _changed(path, origin={"a": "\ud800"}), "Invalid JSON"),
        (lambda path: _changed(path, origin=_nested(100)), "nested deeper"),
        (lambda path: _changed(path)[:-1] + ', "failure": ""}', "a key twice"),
        (lambda path: _changed(path)[:-1] + ", " * (5 << 20), "characters|bytes"),
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
