"""What a board knows goes from one host to another."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from device_agent.contract.manifest import MANIFEST, SIGNATURE
from host.calibration import calibrated, save
from host.errors import EdgeError, UserError
from host.keys import host_key
from host.packs import write_pack
from host.packs.manifest import CALIBRATION, RECORDS
from host.records import RecordOrigin, RecordStore
from host.records.record import invalidated, line_of
from sdk.cli.main import main
from sdk.management.packs import publish, pull
from tests.unit.calibration.samples import MACHINE, board, calibration
from tests.unit.compile.test_first_programs import narrow_s, taught
from tests.unit.packs.samples import BOARD, LINES, contents, good, made, members, trusting
from tests.unit.records.samples import profile, record


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with nothing of its own."""
    for name in ("DATA", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))


def _other_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "other data"))


def test_a_pack_of_a_board_has_its_records_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / "p.pack"
    other = replace(record(1.0), profile={**record(1.0).profile, "board": "pi5"})
    more = record(4.0, threads=3)
    with RecordStore(tmp_path / "r.sqlite") as store:
        store.append([*LINES, other, more])
        done = publish(BOARD, path, store)
    assert (done.board, done.records, done.calibrated, done.key) == (BOARD, 4, False, host_key().public)
    found = members(path)
    assert set(found) == {MANIFEST, SIGNATURE, RECORDS}
    assert found[RECORDS].decode().splitlines() == [*map(line_of, LINES), line_of(more)]
    fields = json.loads(found[MANIFEST])
    assert (fields["board"], fields["records"]) == (BOARD, 4) and fields["versions"]["python"]


def test_the_calibration_of_a_board_is_the_newest_of_its_devices(tmp_path: Path) -> None:
    save(replace(calibration(), device="local", board="pi5"))
    with RecordStore(tmp_path / "r.sqlite") as store:
        store.append(LINES)
        assert not publish(BOARD, tmp_path / "p.pack", store).calibrated
        save(replace(calibration(), device="local"))
        assert publish(BOARD, tmp_path / "p.pack", store).calibrated
    assert json.loads(members(tmp_path / "p.pack")[CALIBRATION])["board"] == BOARD


def test_a_board_without_records_makes_no_file(tmp_path: Path) -> None:
    with RecordStore(tmp_path / "r.sqlite") as store:
        store.append(LINES)
        with pytest.raises(UserError, match="nothing is on record of pi5, which is no device here: sdk dev"):
            publish("pi5", tmp_path / "p.pack", store)
        (tmp_path / "folder").mkdir()
        with pytest.raises(UserError, match="folder is a folder: give the name of a file"):
            publish(BOARD, tmp_path / "folder", store)
    assert not (tmp_path / "p.pack").exists()


def test_what_is_pulled_says_where_it_is_from_and_is_there_once(tmp_path: Path, place: str | Path) -> None:
    path, key = good(tmp_path / "p.pack"), host_key()
    with RecordStore(place) as store:
        first = pull(path, store, trusting(key))
        assert (first.board, first.new, first.found, first.calibrated) == (BOARD, 3, 3, True)
        second = pull(path, store, trusting(key))
        assert (second.new, second.found, second.calibrated) == (0, 3, False)
        kept = list(store)
        assert [one.record_key for one in kept] == [one.record_key for one in LINES]
        for one in kept:
            assert one.origin.pack == first.origin.data()
        assert (first.origin.signer, first.origin.key) == (key.name, key.public)
        [summary] = store.summaries()
        assert (summary.measured, summary.failed, summary.pulled) == (2, 1, 3)


def test_an_older_pack_brings_no_drifted_times_back(tmp_path: Path, place: str | Path) -> None:
    """The board drifted between two packs of it; whoever has the older one may give it again."""
    epoch, key = RecordOrigin.read({"epoch": "a" * 32}), host_key()
    fast, slow = replace(record(1.0, tile=8), origin=epoch), record(2.0)
    older, newer = tmp_path / "older.pack", tmp_path / "newer.pack"
    write_pack(older, BOARD, [fast, slow], None)
    write_pack(newer, BOARD, [invalidated(fast), slow], None)
    with RecordStore(place) as store:
        for path, new, best_s in ((older, 2, 1e-3), (newer, 0, 2e-3), (older, 0, 2e-3)):
            assert pull(path, store, trusting(key)).new == new
            best = store.best("task", profile())
            assert best is not None and best.median_s == best_s


def test_what_was_measured_here_stays_as_it_is(tmp_path: Path) -> None:
    with RecordStore(tmp_path / "r.sqlite") as store:
        store.append(LINES[:2])
        assert pull(good(tmp_path / "p.pack"), store, trusting(host_key())).new == 1
        assert [one.origin.pack is None for one in store] == [True, True, False]
        assert store.summaries()[0].pulled == 1


def test_impossible_records_are_left_out_and_said(tmp_path: Path) -> None:
    lines = contents()[RECORDS] + line_of(record(1e-9, task="free")).encode() + b"\n"
    path = made(tmp_path / "p.pack", {RECORDS: lines}, records=4)
    with RecordStore(tmp_path / "r.sqlite") as store:
        done = pull(path, store, trusting(host_key()))
        assert (done.new, done.found, done.calibrated) == (3, 3, None)
        assert "1 record says what no measurement says (the first is line 4: a time" in done.refused


def test_a_pulled_calibration_serves_boards_of_its_kind(tmp_path: Path) -> None:
    with RecordStore(tmp_path / "r.sqlite") as store:
        pull(good(tmp_path / "p.pack"), store, trusting(host_key()))
    hardware, remark = calibrated("never", MACHINE, board())
    assert hardware == calibration().applied(board().hardware)
    assert remark == f"never as its kind was calibrated on 2026-11-21, from a pack of {host_key().name}"
    other = replace(MACHINE, cpu_name="Another CPU")
    assert calibrated("never", other, board()) == (board().hardware, "")
    own = replace(calibration(), peak_flops=100e9)
    save(own)
    assert calibrated("desk", MACHINE, board())[0] == own.applied(board().hardware)


def test_an_older_calibration_replaces_no_newer_one(tmp_path: Path) -> None:
    older = replace(calibration(), date="2026-11-21T11:59:00+02:00", peak_flops=100e9)
    with RecordStore(tmp_path / "r.sqlite") as store:
        pull(good(tmp_path / "p.pack"), store, trusting(host_key()))
        assert pull(good(tmp_path / "o.pack", older), store, trusting(host_key())).calibrated is False
    assert calibrated("never", MACHINE, board())[0] == calibration().applied(board().hardware)


def test_a_calibration_that_cannot_be_true_is_not_used(tmp_path: Path) -> None:
    fast = replace(calibration(), peak_flops=1e13)
    with RecordStore(tmp_path / "r.sqlite") as store:
        pull(good(tmp_path / "p.pack", fast), store, trusting(host_key()))
    hardware, remark = calibrated("never", MACHINE, board())
    assert hardware == board().hardware
    assert remark.startswith("declared figures are used: the calibration in the pack of")
    assert "a peak of 10000.0 GFLOP/s" in remark and "sdk devices calibrate never" in remark


def test_records_that_cannot_be_added_leave_no_calibration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = good(tmp_path / "p.pack")

    def refuse(store: RecordStore, records: object) -> int:
        raise EdgeError("the database is read only")

    monkeypatch.setattr(RecordStore, "append", refuse)
    with RecordStore(tmp_path / "r.sqlite") as store, pytest.raises(EdgeError, match="read only"):
        pull(path, store, trusting(host_key()))
    assert calibrated("never", MACHINE, board()) == (board().hardware, "")
    assert not any(file.is_file() for file in (tmp_path / "DATA").rglob("*"))


def test_commands_publish_pull_and_show(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, key = tmp_path / "p.pack", host_key()
    taught(tmp_path / "r.sqlite", narrow_s)
    with RecordStore(tmp_path / "r.sqlite") as store:
        count = len(list(store))
    assert main(["records", "publish", BOARD, str(path), "--records", str(tmp_path / "r.sqlite")]) == 0
    said = capsys.readouterr().out
    assert f"{count} records of {BOARD} and no calibration written to {path}" in said
    assert f"sdk keys trust {key.public} --name NAME" in said
    _other_host(tmp_path, monkeypatch)
    other = ["--records", str(tmp_path / "other.sqlite")]
    # This host's own key is trusted on this host.
    for new in (count, 0):
        assert main(["records", "pull", str(path), *other]) == 0
        said = capsys.readouterr().out
        assert f"pack of {key.name} (key {key.public[:16]})" in said
        assert f"{new} of {count} records of {BOARD} are new" in said
    assert main(["records", "list", *other, "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert sum(row["pulled"] for row in rows) == count and {row["pack"] for row in rows} == {key.name}
    assert main(["records", "list", *other]) == 0
    assert "pulled" in capsys.readouterr().out
    assert main(["records", "taught", *other, "-o", "json"]) == 0
    [row] = json.loads(capsys.readouterr().out)
    assert row["pulled"] == row["programs"] == 96
    assert main(["records", "taught", *other]) == 0
    assert "pulled" in capsys.readouterr().out
    assert main(["records", "taught", "--records", str(tmp_path / "r.sqlite")]) == 0
    assert "pulled" not in capsys.readouterr().out
    foreign = made(tmp_path / "f.pack", contents(), host_key(tmp_path / "foreign"))
    assert main(["records", "pull", str(foreign), *other]) == 1
    assert "is not trusted here" in " ".join(capsys.readouterr().err.split())
