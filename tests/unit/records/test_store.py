from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from host.errors import EdgeError
from host.model import SPACE_VERSION, Candidate, DeviceProfile, Energy, Measurement
from host.records import Record, RecordStore
from host.records.store import profile_data
from targets import board_for, declared


def profile(threads: int = 1, device: str = "desk") -> dict[str, object]:
    board = board_for(declared()["x86_64-v3"])
    assert board is not None
    return profile_data(DeviceProfile(device, board, board.hardware, threads))


def record(milliseconds: float, tile: int = 4, threads: int = 1, proposer: str = "gensor") -> Record:
    decisions = (("rows", (tile, 8)), ("unroll", 16))
    candidate = Candidate("task", "matmul", decisions, proposer, math.nan if tile == 4 else 1e-3)
    energy = Energy("measured", 0.25, 0.125, "rapl", "package")
    times = (milliseconds * 1e-3,) * 3
    return Record(candidate, profile(threads), Measurement(times, energy, {"load": 1}, {}, threads))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RecordStore]:
    with RecordStore(tmp_path / "deep" / "records.sqlite") as opened:
        yield opened


def same(a: Record, b: Record) -> bool:
    nan_a, nan_b = math.isnan(a.candidate.estimate_s), math.isnan(b.candidate.estimate_s)
    estimates = (nan_a and nan_b) or a.candidate.estimate_s == b.candidate.estimate_s
    rest_a = (a.candidate.decisions, a.candidate.proposer, a.profile, a.measurement, a.made_at)
    return estimates and rest_a == (
        b.candidate.decisions,
        b.candidate.proposer,
        b.profile,
        b.measurement,
        b.made_at,
    )


def test_records_come_back_as_they_were(store: RecordStore) -> None:
    written = [record(3.0), record(2.0, tile=8)]
    assert store.append(written) == 2
    read = list(store)
    assert len(read) == 2
    assert all(same(a, b) for a, b in zip(read, written, strict=True))


def test_the_best_is_the_fastest_on_the_same_profile(store: RecordStore) -> None:
    store.append([record(3.0), record(2.0, tile=8), record(1.0, tile=16, threads=2)])
    best = store.best("task", profile())
    assert best is not None
    assert best.candidate.value("rows") == (8, 8)
    assert store.best("task", profile(threads=4)) is None
    assert store.best("other", profile()) is None
    assert [r.measurement.median_s for r in store.history("task", profile())] == [0.003, 0.002]


def test_who_calls_the_device_what_does_not_matter() -> None:
    assert profile(device="desk") == profile(device="shelf")
    assert profile(threads=1) != profile(threads=2)


def test_a_record_of_another_space_version_is_no_answer(store: RecordStore) -> None:
    old = record(1.0)
    candidate = Candidate("task", "matmul", old.candidate.decisions, "gensor", 0.5, space_version=0)
    store.append([Record(candidate, old.profile, old.measurement)])
    assert store.best("task", profile()) is None
    assert len(list(store)) == 1


def test_records_are_selected_by_profile_and_space_version(store: RecordStore) -> None:
    old = record(1.0)
    candidate = Candidate("task", "matmul", old.candidate.decisions, "gensor", 0.5, space_version=0)
    store.append([Record(candidate, old.profile, old.measurement), record(2.0), record(3.0, threads=2)])

    def times(**chosen: Any) -> list[float]:
        return [r.measurement.median_s for r in store.select(**chosen)]

    assert times() == [0.001, 0.002, 0.003]
    assert times(profile=profile()) == [0.001, 0.002]
    assert times(space_version=0) == [0.001]
    assert times(profile=profile(threads=2), space_version=SPACE_VERSION) == [0.003]


def test_the_program_is_the_same_whoever_proposed_it() -> None:
    assert record(1.0).candidate_key == record(2.0, proposer="tlm").candidate_key
    assert record(1.0).candidate_key != record(1.0, tile=2).candidate_key


def test_export_and_load_keep_everything(store: RecordStore, tmp_path: Path) -> None:
    store.append([record(3.0), record(2.0, tile=8)])
    lines = tmp_path / "records.jsonl"
    assert store.export(lines) == 2
    assert json.loads(lines.read_text().splitlines()[0])["schema"] == "edgetlm.record/1"
    with RecordStore(tmp_path / "copy.sqlite") as copy:
        assert copy.load(lines) == 2
        assert all(same(a, b) for a, b in zip(copy, store, strict=True))


def test_a_damaged_export_is_refused_whole(store: RecordStore, tmp_path: Path) -> None:
    store.append([record(3.0)])
    lines = tmp_path / "records.jsonl"
    store.export(lines)
    lines.write_text(lines.read_text() + '{"schema": "other/1"}\n')
    with RecordStore(tmp_path / "copy.sqlite") as copy:
        with pytest.raises(EdgeError, match="line 2 is no record"):
            copy.load(lines)
        assert list(copy) == []


def test_a_store_that_cannot_be_opened_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("this is no database, and long enough to be seen as none" * 20)
    with pytest.raises(EdgeError, match="cannot be opened"):
        RecordStore(tmp_path / "file")
