"""Records as MetaSchedule's database: what stock MetaSchedule reads, and what comes back."""

from __future__ import annotations

import base64
import json
import random
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tvm
import tvm_ffi
from tvm import s_tir
from tvm.s_tir import meta_schedule as ms

from host.errors import EdgeError, UserError
from host.lowering.tasks import workload_hash
from host.model import DeviceProfile, Energy, Measurement, Task
from host.records import Record, RecordOrigin, RecordStore, metaschedule, profile_data
from host.records.metaschedule import RECORDS, WORKLOADS, Imported, export_database, import_database
from host.schedules import DesignSpace, scheduled_function, space_for
from targets import Board
from tests.unit.lowering.attention.test_cached_attention import Case, lowered
from tests.unit.records.samples import same
from tests.unit.records.stock import BOARD, dense_space, stock_database
from tests.unit.schedules import functions as fn
from tests.unit.schedules.cpu.dot_cases import dense_task, vnni_board
from tests.unit.schedules.cuda import mma_cases as products_of_halves
from tests.unit.schedules.cuda.cuda_cases import gpu_board

PROFILE = profile_data(DeviceProfile("desk", BOARD, BOARD.hardware, 1))
SPACES = {
    space.task.workload_hash: space
    for space in (
        dense_space(),
        space_for(fn.task(fn.softmax(4, 8, 32), "softmax"), BOARD.hardware, 1),
    )
}
DENSE = next(iter(SPACES.values()))


def record(space: DesignSpace, seed: int, seconds: float) -> Record:
    candidate = space.candidate(space.sample(random.Random(seed)), "tlm", 1e-6 if seed else float("nan"))
    energy = Energy("measured", 0.5, None, "rapl", "package")
    state = {"temperatures": {"cpu": 51.5}, "throttle_count": 0}
    measured = Measurement((seconds, seconds * 1.1, seconds / 3), energy, state, {}, 1)
    origin = RecordOrigin(
        command='sdk tune "a \\ b"\n', versions={"edgetlm": "0.1"}, sentence=("a", "é"), foreign={"x": [1]}
    )
    return Record(candidate, PROFILE, measured, origin=origin)


def records() -> list[Record]:
    made = [record(space, seed, 1e-4 / (3 + seed)) for space in SPACES.values() for seed in range(3)]
    bad = DENSE.candidate(DENSE.sample(random.Random(9)), "gensor")
    return [*made, Record.failed(bad, PROFILE, 'crashed with "signal 4"')]


def read(folder: Path, spaces: Any = SPACES, profile: Any = PROFILE) -> Imported:
    return import_database(folder, spaces, profile, workload_hash)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    done = export_database(records(), (), SPACES, tmp_path / "database")
    assert (done.written, done.foreign, dict(done.left_out)) == (7, 0, {})
    assert sorted(path.name for path in (tmp_path / "database").iterdir()) == [RECORDS, WORKLOADS]
    return tmp_path / "database"


def test_stock_metaschedule_finds_and_applies_our_best_program(folder: Path) -> None:
    database = ms.database.JSONDatabase(work_dir=str(folder), allow_missing=False)
    assert len(database) == 7
    target = tvm.target.Target({**BOARD.tvm_target, "num-cores": 1})
    for space in SPACES.values():
        module = tvm.IRModule({"main": space.task.function})
        found = database.query_tuning_record(module, target, "main")
        best = record(space, 2, 1e-4 / 5)
        assert [float(seconds) for seconds in found.run_secs] == list(best.measurement.times_s)
        assert [str(one.dtype) for one in found.args_info] == ["float32"] * len(space.task.function.params)
        schedule = s_tir.Schedule(module)
        found.trace.apply_to_schedule(schedule, remove_postproc=False)
        program = scheduled_function(space.apply(best.candidate))
        assert tvm_ffi.structural_equal(schedule.mod["main"], program)
        workload = database.commit_workload(module)
        assert len(database.get_top_k(workload, 9)) == 3, "what failed is no answer to MetaSchedule either"


def test_all_of_a_record_comes_back(folder: Path, tmp_path: Path) -> None:
    found = read(folder)
    assert (found.foreign, dict(found.left_out)) == ((), {})
    written = records()
    for a, b in zip(found.records, written, strict=True):
        assert same(a, replace(b, made_at=a.made_at))
    with RecordStore(tmp_path / "records.sqlite") as store:
        assert store.append(found.records) == 7
        assert store.append(read(folder).records) == 0, "the same records have the same keys"
        best = store.best(DENSE.task.workload_hash, PROFILE)
        assert best is not None and best.candidate == record(DENSE, 2, 1.0).candidate


@pytest.mark.parametrize(
    ("board", "task", "threads"),
    [
        (gpu_board(), fn.task(fn.dense(64, 64, 64, 32)), 1),
        (vnni_board(4), dense_task(64, 64, 64, 16), 4),
        (fn.board(cores=2), fn.task(fn.softmax(4, 8, 32)), 2),
    ],
)
def test_programs_of_every_kind_come_back(board: Board, task: Task, threads: int, tmp_path: Path) -> None:
    space = space_for(task, board.hardware, threads)
    profile = profile_data(DeviceProfile("desk", board, board.hardware, threads))
    written = [replace(record(space, seed, 1e-5), profile=profile) for seed in range(4)]
    export_database(written, (), {task.workload_hash: space}, tmp_path)
    found = read(tmp_path, {task.workload_hash: space}, profile)
    assert (found.foreign, dict(found.left_out)) == ((), {})
    assert all(same(a, b) for a, b in zip(found.records, written, strict=True))
    for line in ms.database.JSONDatabase(work_dir=str(tmp_path)).get_all_tuning_records():
        line.trace.apply_to_schedule(s_tir.Schedule(line.workload.mod), remove_postproc=False)
        assert str(line.target.kind) == board.tvm_target["kind"]


def test_what_cannot_be_made_again_is_counted(tmp_path: Path) -> None:
    old, other, illegal = records()[:3]
    old = replace(old, candidate=replace(old.candidate, space_version=1))
    other = replace(other, candidate=replace(other.candidate, workload_hash="elsewhere"))
    illegal = replace(illegal, candidate=replace(illegal.candidate, decisions=(("rows", 3),)))
    done = export_database([old, other, illegal, records()[3]], (), SPACES, tmp_path)
    assert done.written == 1
    assert dict(done.left_out) == {
        "that their design space cannot make": 2,
        "of tasks that the model does not have on this device": 1,
    }


def test_programs_that_a_trace_does_not_give_are_left_out(tmp_path: Path) -> None:
    space = space_for(fn.task(products_of_halves.dense(64, 64, 64)), gpu_board().hardware)
    assert space.rule.name == "cuda_mma"
    made = record(space, 1, 1e-4)
    done = export_database([made], (), {space.task.workload_hash: space}, tmp_path / "database")
    reason = "of programs that MetaSchedule's traces do not give"
    assert (done.written, dict(done.left_out)) == (0, {reason: 1})


def test_whether_a_trace_gives_a_program_is_asked_for_each(tmp_path: Path) -> None:
    """Attention over a cache is scheduled by a trace unless threads share its positions."""
    [task] = lowered(Case(1, 8, 1, 64, 4096)).tasks
    space = space_for(task, fn.board().hardware, 2)
    values = ({"splits": 1, "parallel": 2}, {"splits": 2, "parallel": 2})
    made = [replace(record(space, 1, 1e-4), candidate=space.candidate(one, "test")) for one in values]
    done = export_database(made, (), {space.task.workload_hash: space}, tmp_path / "database")
    reason = "of programs that MetaSchedule's traces do not give"
    assert (done.written, dict(done.left_out)) == (1, {reason: 1})


def test_records_of_ours_need_their_task_and_device(folder: Path) -> None:
    elsewhere = {**PROFILE, "threads": 2}
    found = read(folder, profile=elsewhere)
    assert (found.records, found.foreign) == ((), ())
    assert dict(found.left_out) == {"of another device or number of threads": 7}
    found = read(folder, spaces={DENSE.task.workload_hash: DENSE})
    assert len(found.records) == 4
    assert dict(found.left_out) == {"of tasks that the model does not have on this device": 3}


def test_a_trace_that_was_changed_is_not_ours(folder: Path) -> None:
    path = folder / RECORDS
    lines = path.read_text().splitlines()
    index, (trace, *rest) = json.loads(lines[0])
    taken = trace[1][0]
    taken[1] = taken[1] + 1 if taken[1] == 0 else taken[1] - 1
    lines[0] = json.dumps([index, [trace, *rest]])
    path.write_text("\n".join(lines) + "\n")
    found = read(folder)
    assert (len(found.records), len(found.foreign)) == (6, 1)


@pytest.fixture
def stock(tmp_path: Path) -> Path:
    return stock_database(tmp_path / "stock")


def test_stock_records_are_kept_and_never_taken_for_ours(stock: Path, tmp_path: Path) -> None:
    found = read(stock)
    assert found.records == ()
    assert [one.median_s for one in found.foreign] == [3e-5, None, None]
    assert {one.workload_hash for one in found.foreign} == {DENSE.task.workload_hash}
    with RecordStore(tmp_path / "records.sqlite") as store:
        assert store.append_foreign(found.foreign) == 3
        assert store.append_foreign(read(stock).foreign) == 0
        assert store.best(DENSE.task.workload_hash, PROFILE) is None
        again = tmp_path / "again"
        done = export_database(records()[:2], store.foreign(), SPACES, again)
    assert (done.written, done.foreign) == (2, 3)
    mixed = read(again)
    assert mixed.foreign == found.foreign
    assert len(mixed.records) == 2
    assert len(ms.database.JSONDatabase(work_dir=str(again), allow_missing=False)) == 5


def test_a_database_is_not_written_over(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(UserError, match="has a MetaSchedule database already"):
        export_database(records(), (), SPACES, folder)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_an_empty_database_is_one(tmp_path: Path) -> None:
    export_database((), (), SPACES, tmp_path)
    assert read(tmp_path) == Imported((), (), {})


@pytest.mark.parametrize("seconds", ["0.0", "-1.0", "1e-30", "1e5", "NaN", "Infinity", "-Infinity"])
def test_times_that_no_program_has_are_left_out_and_told(folder: Path, seconds: str) -> None:
    whole = read(folder)
    path = folder / RECORDS
    lines = path.read_text().splitlines()
    index, (trace, _, *rest) = json.loads(lines[1])
    written = json.dumps([index, [trace, "SECONDS", *rest]]).replace('"SECONDS"', f"[{seconds}]")
    path.write_text("".join(line + "\n" for line in [lines[0], written, *lines[2:]]))
    found = read(folder)
    assert found.refused.startswith("1 record says what no measurement says (the first is line 2: a time of")
    assert len(found.records) + len(found.foreign) == len(whole.records) + len(whole.foreign) - 1


def test_a_mark_of_few_bytes_does_not_become_gigabytes() -> None:
    mark = base64.b64encode(zlib.compress(b"0" * (64 << 20), 9)).decode()
    assert len(mark) < 1 << 17
    with pytest.raises(ValueError, match="longer than a record"):
        metaschedule._unpacked(mark)
    with pytest.raises(ValueError, match="cut off"):
        metaschedule._unpacked(base64.b64encode(zlib.compress(b"{}")[:-3]).decode())


def test_a_folder_without_a_database_is_said_to_be_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no database_workload"):
        read(tmp_path)


def _cut(line: str) -> str:
    return line[: len(line) // 2]


def _elsewhere(line: str) -> str:
    return json.dumps([7, json.loads(line)[1]])


def _instruction(line: str) -> str:
    return line.replace('"GetSBlock"', '"NoSuchInstruction"', 1)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        (RECORDS, _cut),
        (RECORDS, _elsewhere),
        (RECORDS, _instruction),
        (RECORDS, lambda line: "{}"),
        (RECORDS, lambda line: '[0, [[], "soon", {}, []]]'),
        (RECORDS, lambda line: "\udcff"),
        (WORKLOADS, _cut),
        (WORKLOADS, lambda line: '["1", "no function"]'),
    ],
)
def test_a_damaged_line_is_named(folder: Path, name: str, damage: Callable[[str], str]) -> None:
    path = folder / name
    lines = path.read_text().splitlines()
    lines[1] = damage(lines[1])
    path.write_bytes("".join(line + "\n" for line in lines).encode("utf-8", "surrogateescape"))
    with pytest.raises(EdgeError, match=f"{name}, line 2 is damaged .*nothing was imported") as raised:
        read(folder)
    assert "\n" not in str(raised.value)
