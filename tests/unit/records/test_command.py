"""`sdk records` from the command line."""

from __future__ import annotations

import base64
import csv
import io
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from host.deploy import CompileOptions
from host.errors import UserError
from host.model import Energy, Measurement
from host.progress import Silence
from host.records import ForeignRecord, Record, RecordOrigin, RecordStore
from host.records.metaschedule import RECORDS
from sdk.cli.main import main
from sdk.management.records import device_data, import_lines, tasks_of
from tests.integration.small_models import convnet
from tests.unit.records.samples import failure, profile, record
from tests.unit.records.stock import stock_database


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "records.sqlite"
    with RecordStore(path) as made:
        slow = replace(record(40.0, task="slow"), origin=RecordOrigin(task="fused_dense"))
        made.append([record(3.0), record(2.0, tile=8, proposer="tlm"), failure(), slow])
        made.append([Record.failed(record(1.0, task="hopeless").candidate, profile(), "no memory")])
        made.append_foreign([ForeignRecord("task", "function", "trace", 1e-6)])
    return path


def test_list_shows_every_task_the_slowest_first(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["records", "list", "--records", str(store)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert lines[0][:4] == ["task", "function", "board", "threads"]
    date = record(1.0).made_at[:10]
    space = str(record(1.0).candidate.space_version)
    assert lines[2:] == [
        ["slow", "fused_dense", "x86_64", "1", space, "1", "0", "40000.0", "us", "gensor", date, "250", "mJ"],
        ["task", "x86_64", "1", space, "2", "1", "2000.0", "us", "tlm", date, "250", "mJ"],
        ["hopeless", "x86_64", "1", space, "0", "1", "none", "runs", "gensor", date],
        ["task", "1", "0", "1.0", "us", "metaschedule"],
    ]


def test_list_is_written_for_programs(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["records", "list", "--records", str(store), "-o", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [one["task"] for one in listed] == ["slow", "task", "hopeless", "task"]
    assert [one["best_s"] for one in listed] == [0.04, 0.002, None, 1e-6]
    assert [one["function"] for one in listed] == ["fused_dense", None, None, None]
    assert listed[1]["proposer"] == "tlm" and listed[3]["proposer"] == "metaschedule"
    assert main(["records", "list", "--records", str(store), "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["measured"] for row in rows] == [str(one["measured"]) for one in listed]


def test_list_has_joules_where_there_are_some(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = record(1.5, task="warm")
    energy = Energy("measured", 0.0005, None, "rapl", "package", mean_w=3.0, trials=2, std_j=1e-6)
    with RecordStore(store) as made:
        made.append([replace(one, measurement=replace(one.measurement, energy=energy))])
    assert main(["records", "list", "--records", str(store)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert lines[0][-1] == "joules"
    assert [line[-2:] for line in lines if line[0] == "warm"] == [["0.5", "mJ"]]
    assert main(["records", "list", "--records", str(store), "-o", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {row["task"]: row["best_j"] for row in listed}["warm"] == 0.0005
    # The joules of a record go with it.
    lines_file = store.parent / "records.jsonl"
    with RecordStore(store) as made, RecordStore(store.parent / "other.sqlite") as other:
        made.export(lines_file)
        import_lines(other, lines_file)
        assert [kept.measurement.energy for kept in other if kept.candidate.workload_hash == "warm"] == [
            energy
        ]


def test_an_empty_list_is_one_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with RecordStore(tmp_path / "empty.sqlite"):
        pass
    arguments = ["records", "list", "--records", str(tmp_path / "empty.sqlite")]
    assert main(arguments) == 0
    assert capsys.readouterr().out == "no records yet\n"
    assert main([*arguments, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_list_of_a_device_leaves_others_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "records.sqlite"
    here = {**device_data("local"), "threads": 3}
    one = record(1.0, task="here")
    with RecordStore(store) as made:
        made.append([record(1.0, task="elsewhere"), Record(one.candidate, here, one.measurement)])
    assert main(["records", "list", "--device", "local", "--records", str(store)]) == 0
    text = capsys.readouterr().out
    assert "here" in text and "elsewhere" not in text
    assert main(["records", "list", "--device", "nowhere", "--records", str(store)]) == 2


def test_lines_go_out_and_come_in(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = tmp_path / "records.jsonl"
    assert main(["records", "export", str(lines), "--records", f"sqlite:///{store}"]) == 0
    text = capsys.readouterr().out
    assert f"5 records written to {lines}" in text
    assert "1 records of MetaSchedule's own rules left out" in text
    monkeypatch.setenv("EDGETLM_RECORDS", str(tmp_path / "copy.sqlite"))
    for new in (5, 0):
        assert main(["records", "import", str(lines)]) == 0
        assert capsys.readouterr().out == f"{new} of 5 records are new\n"
    lines.write_text(lines.read_text()[:-100])
    assert main(["records", "import", str(lines)]) == 1
    assert "records.jsonl, line 5 is no record" in capsys.readouterr().err


@pytest.mark.usefixtures("own_files")
@pytest.mark.parametrize(
    ("dtype", "other"), [pytest.param("fp32", "fp16", marks=pytest.mark.long), ("fp16", "fp32")]
)
def test_a_model_goes_to_metaschedule_and_back(
    dtype: str, other: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, store = convnet(tmp_path / "net.onnx"), tmp_path / "records.sqlite"
    tasks = tasks_of(CompileOptions(model, threads=1, dtype=dtype), "local", Silence())
    nothing = Energy("unavailable", None, None, "")
    with RecordStore(store) as made:
        for seed, space in enumerate(tasks.spaces.values()):
            candidate = space.candidate(space.sample(random.Random(seed)), "random")
            made.append([Record(candidate, dict(tasks.profile), Measurement((1e-6,), nothing, {}, {}, 1))])
        made.append([record(1.0)])
    count = len(tasks.spaces)
    folder, named = str(tmp_path / "database"), ["--model", str(model), "--threads", "1", "--dtype", dtype]
    stored = ["--records", str(store)]
    assert main(["records", "export", folder, "--format", "metaschedule", *stored]) == 2
    assert "--model MODEL" in capsys.readouterr().err
    elsewhere = [str(tmp_path / other), "--format", "metaschedule", *named[:-1], other]
    assert main(["records", "export", *elsewhere, *stored]) == 0
    assert f"{count} records of {model}" not in capsys.readouterr().out
    assert main(["records", "export", folder, "--format", "metaschedule", *named, *stored]) == 0
    assert f"{count} records of {model} on local written to {folder}" in capsys.readouterr().out
    assert main(["records", "import", folder, *named, *stored]) == 0
    assert f"0 of {count} records are new" in capsys.readouterr().out
    stored = ["--records", str(tmp_path / "copy.sqlite")]
    assert main(["records", "import", folder, *stored]) == 0
    assert f"{count} records of this program left out: name their model" in capsys.readouterr().out
    assert main(["records", "import", folder, *named, *stored]) == 0
    assert f"{count} of {count} records are new" in capsys.readouterr().out


def test_records_of_stock_rules_need_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, again = stock_database(tmp_path / "stock"), tmp_path / "again"
    stored = ["--records", str(tmp_path / "records.sqlite")]
    for new in (3, 0):
        assert main(["records", "import", str(folder), *stored]) == 0
        assert capsys.readouterr().out.startswith(f"{new} of 3 records of MetaSchedule's own rules are new;")
    assert main(["records", "export", str(again), "--format", "metaschedule", *stored]) == 0
    assert capsys.readouterr().out == f"3 records of MetaSchedule's own rules written to {again}\n"
    assert (again / RECORDS).read_text() == (folder / RECORDS).read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["list"], "nowhere.sqlite: no records there yet"),
        (["export", "out.jsonl"], "nowhere.sqlite: no records there yet"),
        (["export", "out", "--format", "csv"], "--format csv: use jsonl or metaschedule"),
        (["import", "absent.jsonl"], "absent.jsonl: no such file or folder"),
        (["import", "folder"], "folder has no database_workload.json"),
        (["import", "folder", "--model", "absent.onnx"], "absent.onnx: no such file"),
        (["import", "folder", "--model", "net.onnx", "--shape", "x=1..3"], "records are of one length"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    convnet(tmp_path / "net.onnx")
    assert main(["records", *arguments, "--records", "nowhere.sqlite"]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1


def test_a_store_of_another_version_is_one_line(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with RecordStore(store) as made, made._database.writing() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0009'")
    assert main(["records", "list", "--records", str(store)]) == 1
    error = capsys.readouterr().err
    assert "is of schema version 9" in error and error.count("\n") == 1


def test_every_line_is_a_record_by_itself(store: Path, tmp_path: Path) -> None:
    lines = tmp_path / "records.jsonl"
    assert main(["records", "export", str(lines), "--records", str(store)]) == 0
    contents = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [content["failure"] for content in contents] == ["", "", "no registers left", "", "no memory"]
    assert {content["schema"] for content in contents} == {"edgetlm.record/2"}


@pytest.mark.parametrize(
    "module",
    [b"[" * 1_000_000, json.dumps({"root_index": 0, "nodes": [{"type": "ffi.Array", "data": [0]}]}).encode()],
    ids=["nested deeply", "its own part"],
)
def test_a_database_that_ends_its_reader_is_one_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], module: bytes
) -> None:
    """TVM's reader of functions ends its process on these: ours is another."""
    folder = tmp_path / "database"
    folder.mkdir()
    written = base64.b64encode(len(module).to_bytes(8, "little") + module).decode()
    (folder / "database_workload.json").write_text(json.dumps(["1", written]) + "\n")
    (folder / RECORDS).touch()
    assert main(["records", "import", str(folder), "--records", str(tmp_path / "r.sqlite")]) == 1
    err = capsys.readouterr().err
    assert f"{folder} cannot be read by MetaSchedule" in err and "nothing was imported" in err
    assert err.count("\n") == 1


def test_a_store_whose_folder_cannot_be_made_is_one_line_with_the_next_step(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"r\.sqlite: .*; name a file that can be written with --records"):
        RecordStore(tmp_path / "file" / "r.sqlite")
