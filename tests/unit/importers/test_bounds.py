"""Hostile files end in one line, soon, in little memory; nothing of them is an internal error."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

import host.importers.worker.child  # noqa: F401 - loaded once, not in each child
from host.errors import EdgeError, ModelFileError
from host.importers import load, load_here, start_ahead
from host.importers.worker import ahead
from host.importers.worker.ahead import files_of, limits_for, open_worker
from host.importers.worker.parent import explained, try_import
from host.sandbox import Limits, Unforeseen, Worker, WorkerLost
from tests.shared_cache import zoo_model
from tests.unit.importers.hostile import HOSTILE


@pytest.fixture(autouse=True)
def references() -> None:
    """Original runtimes run in processes of their own, as those of a user do."""


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_ends_in_one_line(name: str, tmp_path: Path) -> None:
    write, said = HOSTILE[name]
    path = tmp_path / "hostile.onnx"
    write(path)
    outcome = try_import(path)
    assert outcome.kind in ("error", "unforeseen", "memory"), (outcome.kind, outcome.message)
    assert outcome.message.isprintable()
    # Memory is looked at from time to time; a machine that does other work looks late.
    assert outcome.memory_bytes < 6_000_000_000
    if said != ".":
        assert outcome.kind == "error"
        with pytest.raises(EdgeError, match=said):
            load_here(path)


def test_what_nobody_foresaw_is_an_error_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "hostile.onnx"
    HOSTILE["no branches"][0](path)
    with pytest.raises(ModelFileError, match=r"hostile\.onnx: .*export the model again") as error:
        load(path)
    assert str(error.value).isprintable()


def test_an_import_over_its_limit_says_what_to_change(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"\x08" * 2_000_000)
    for kind, message in (("memory", "it needs over 3.8 GB of memory"), ("time", "it takes over 26 s")):
        line = explained(path, WorkerLost(kind, message))
        assert message in line and "2.0 MB" in line and "export the model again" in line
    assert "SIGSEGV" in explained(path, WorkerLost("crash", "it crashed (SIGSEGV)"))
    assert r"\x1b" in explained(path, Unforeseen("KeyError: \x1b"))


def test_limits_grow_with_what_lies_on_the_disk(tmp_path: Path) -> None:
    small, holes, large = (tmp_path / name for name in ("small", "holes", "large"))
    small.write_bytes(b"x")
    with holes.open("wb") as stream:
        stream.truncate(40 << 30)
    large.write_bytes(b"x" * (32 << 20))
    assert limits_for([small]).memory_bytes < 4_000_000_000 and limits_for([small]).cpu_s < 28
    assert limits_for([small, holes]).memory_bytes < 4_000_000_000
    assert limits_for([large]).memory_bytes > limits_for([small]).memory_bytes + 10 * (32 << 20)
    assert limits_for([large]).cpu_s > 50


def test_a_worker_gets_the_files_that_the_model_names_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"\x08\x08 weights.bin .secret parts/one")
    for name in ("weights.bin", ".secret", "other.bin"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "parts").mkdir()
    assert files_of(path) == [path, tmp_path / "parts", tmp_path / "weights.bin"]
    archive = tmp_path / "model.tflite"
    archive.write_bytes(b"....TFL3 weights.bin")
    assert files_of(archive) == [archive]


def test_the_limit_of_time_holds_for_the_original_runtime_too(tmp_path: Path) -> None:
    path = tmp_path / "slow.onnx"
    HOSTILE["loops in loops"][0](path)
    outcome = try_import(path, limits=Limits(3_000_000_000, 0.01, 60.0, 1 << 30))
    assert outcome.kind in ("time", "error")


@pytest.fixture
def _nothing_left_out() -> Iterator[None]:
    """The collector leaves out nothing, as where the product begins; `tests/conftest.py` leaves out much."""
    gc.unfreeze()
    yield
    gc.collect()
    gc.freeze()


@pytest.mark.usefixtures("_nothing_left_out")
def test_the_collector_leaves_libraries_out_until_a_file_is_dealt_with() -> None:
    path = zoo_model("mlp", "onnx")
    with start_ahead(path) as worker:
        assert worker is not None and not gc.get_freeze_count()
        assert load(path, worker=worker).module is not None
        assert gc.get_freeze_count()
    assert not gc.get_freeze_count()


@pytest.mark.usefixtures("_nothing_left_out")
def test_what_a_caller_has_left_out_of_the_collector_stays_out(tmp_path: Path) -> None:
    gc.freeze()
    try:
        with start_ahead(tmp_path / "none.onnx"):
            pass
        assert gc.get_freeze_count()
    finally:
        gc.unfreeze()


def test_the_libraries_of_an_archive_are_loaded_before_its_limits_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SymPy and most of `torch.export` would come with the first file that is read."""

    def with_tests(read: list[Path], limits: Limits, prepare: tuple[str, ...]) -> Worker:
        return Worker([*read, Path(__file__).parents[2]], limits, prepare)

    monkeypatch.setattr(ahead, "Worker", with_tests)
    path = zoo_model("mlp", "pt2")
    request = {"path": str(path), "shapes": {}, "seed": 0, "golden_cases": 1, "samples": None, "half": ""}
    with open_worker(path, calls=3) as worker:
        before = worker.call("tests.unit.sandbox.tasks:loaded", {})
        worker.call("host.importers.worker.child:read", request)
        after = worker.call("tests.unit.sandbox.tasks:loaded", {})
    assert len(before) > 2000
    late = set(after) - set(before)
    assert len(late) < 50, sorted(late)
