"""`sdk tlm finetune`: from records of a device to the model that it uses."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from host.compile.device_profile import profile_of
from host.model import DeviceProfile
from host.records import RecordOrigin, RecordStore, profile_data
from host.tlm.model import checkpoints
from host.tlm.model.card import WEIGHTS
from host.transport import connect
from sdk.cli.main import main
from tests.unit.tlm.hosts import EndingHosts
from tests.unit.tlm.learning import CHOICES, prompt, record_of, seconds_of


@pytest.fixture
def desk(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeviceProfile:
    """This machine with one thread, its records in the user's store."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("EDGETLM_RECORDS", raising=False)
    monkeypatch.setattr(checkpoints, "SHIPPED", base)
    with connect("local") as device:
        return profile_of(device, 1)


def _stored(profile: DeviceProfile, tmp_path: Path) -> None:
    generator = random.Random(4)
    records = []
    for number in range(24):
        for vectors, rows in generator.sample([(v, r) for v in CHOICES for r in CHOICES], 12):
            record = record_of(
                {"vectors": vectors, "rows": rows}, seconds_of(vectors, rows), list(prompt(9, number))
            )
            candidate = replace(record.candidate, workload_hash=f"{number}")
            records.append(replace(record, candidate=candidate, profile=profile_data(profile)))
    records.append(replace(records[0], origin=RecordOrigin(), made_at="2026-01-01T00:00:00+00:00"))
    records.append(
        replace(records[0], profile={**profile_data(profile), "threads": 64}, origin=RecordOrigin())
    )
    with RecordStore(tmp_path / "edgetlm" / "records.sqlite") as store:
        assert store.append(records) == len(records)


def test_the_command_makes_the_model_that_the_device_uses(
    base: Path, desk: DeviceProfile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _stored(desk, tmp_path)
    command = ["tlm", "finetune", "--device", "local", "--threads", "1", "--steps", "40"]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "1 records without a sentence are skipped" in said
    assert "training 160 of 160, loss" in said
    used = checkpoints.model_for(desk)
    assert used != base and str(used) in said
    assert main([*command, "--out", str(tmp_path / "elsewhere")]) == 0
    assert checkpoints.accepted(tmp_path / "elsewhere") is not None
    assert checkpoints.model_for(desk) == used
    (used / WEIGHTS).write_bytes(b"damaged")
    capsys.readouterr()
    assert main(command) == 1
    said = capsys.readouterr().err
    assert "damaged" in said and said.count("\n") == 1


def test_the_command_without_records_says_what_makes_some(
    desk: DeviceProfile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tlm", "finetune"]) == 2
    assert "no records there yet" in capsys.readouterr().err
    _stored(replace(desk, threads=3), tmp_path)
    assert main(["tlm", "finetune", "--threads", "1"]) == 1
    assert "no programs were measured on local with 1 threads" in capsys.readouterr().err


def test_the_command_trains_on_the_hosts_of_an_engine(
    desk: DeviceProfile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _stored(desk, tmp_path)
    engine, asked = EndingHosts([2]), []
    monkeypatch.setattr("host.execution.open_engine", lambda name: asked.append(name) or engine)
    monkeypatch.setattr("host.tlm.training.on_host._ASK_S", 0.0)
    command = ["tlm", "finetune", "--threads", "1", "--steps", "20", "--engine", "ray://10.0.0.1:6379"]
    assert main(command) == 0
    assert "training 60 of 80, loss" in capsys.readouterr().out
    assert asked == ["ray://10.0.0.1:6379"] and engine.begun[:4] == [0, 0, 0, 0]
