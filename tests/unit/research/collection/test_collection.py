"""The collection of measured programs: what is drawn, what is kept, and that a cut run continues."""

from __future__ import annotations

import gzip
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from host.errors import MeasureError
from host.model import DeviceProfile
from host.schedules import DesignSpace, space_for
from research.collection import collect
from research.collection.collect import ROUNDS, SWEEP, BenchTimer, CollectedTask, Collector, tasks_in
from research.collection.dataset import MeasuredProgram, append_programs, read_programs
from research.collection.draw import draw_programs
from tests.unit.lowering.harness import imported, relax_module
from tests.unit.lowering.test_bands import Shape, small_board
from tests.unit.schedules import functions as fn

PROGRAM = MeasuredProgram("model", "hash", "task", "tiled", 4, {"rows": 4}, "uniform", (2e-6, 1e-6))


def _space() -> DesignSpace:
    return space_for(fn.task(fn.dense(24, 64, 32, lanes=8)), fn.board(restrict="avx2").hardware)


def _profile() -> DeviceProfile:
    board = fn.board(restrict="avx2")
    return DeviceProfile("device", board, board.hardware, 1)


def test_a_file_grows_and_survives_a_line_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "programs.jsonl"
    assert list(read_programs(path)) == []
    append_programs(path, [PROGRAM, PROGRAM])
    path.write_bytes(path.read_bytes()[:-9])
    assert list(read_programs(path)) == [PROGRAM]
    append_programs(path, [PROGRAM])
    assert list(read_programs(path)) == [PROGRAM, PROGRAM]
    assert PROGRAM.seconds == 1e-6


def test_compressed_programs_are_read(tmp_path: Path) -> None:
    plain = tmp_path / "programs.jsonl"
    append_programs(plain, [PROGRAM])
    path = tmp_path / "programs.jsonl.gz"
    path.write_bytes(gzip.compress(plain.read_bytes()))
    assert list(read_programs(path)) == [PROGRAM]


def test_programs_are_legal_distinct_and_new_in_each_sweep() -> None:
    space, known = _space(), []
    for sweep in range(2):
        drawn = draw_programs(space, _profile(), sweep, 16, known)
        assert all(space.legal(values) and values not in known for values, _ in drawn)
        origins = {origin for _, origin in drawn}
        assert ("gensor" in origins) == (sweep == 0) and {"uniform", "estimate"} <= origins
        assert drawn == draw_programs(space, _profile(), sweep, 16, known)
        known += [values for values, _ in drawn]
    assert len({tuple(values.items()) for values in known}) == len(known) == 32


class _Runner:
    """Times every kernel of a library; some kernels fail."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def measure(self, library: Path, name: str, *_: Any, **__: Any) -> SimpleNamespace:
        self.calls.append(name)
        if name == "kernel_1":
            raise MeasureError("it does not run")
        return SimpleNamespace(median_s=1e-6 * (1 + len(self.calls)))


def test_a_cut_collection_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "build_kernel_library", lambda *_: None)
    space, path, notes = _space(), tmp_path / "programs.jsonl", list[str]()
    tasks = {space.task.workload_hash: CollectedTask("model", space)}

    def collector() -> Collector:
        runner = _Runner()
        bench = SimpleNamespace(profile=_profile(), target=None, runner=runner, folder=tmp_path, cache=None)
        return Collector(BenchTimer(bench), bench.profile, tasks, path, notes.append)  # type: ignore[arg-type]

    first = collector()
    first.run(1, until=float("inf"))
    assert first.measured == SWEEP - 1 and len(notes) == 1
    programs = list(read_programs(path))
    assert len(programs) == SWEEP - 1 and all(len(one.times_s) == ROUNDS for one in programs)
    assert [one.first for one in programs] == [True] + [False] * (SWEEP - 2)
    assert all(one.estimated_s["total"] > 0.0 for one in programs)
    second = collector()
    second.run(1, until=float("inf"))
    assert second.measured == 0
    second.run(2, until=float("-inf"))
    assert second.measured == 0
    second.run(2, until=float("inf"))
    every = [tuple(sorted(one.decisions.items())) for one in read_programs(path)]
    assert len(every) == len(set(every)) > SWEEP


def test_chains_in_bands_are_among_the_tasks_if_they_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = Shape()
    model = imported(relax_module(shape.build, shape.inputs))
    monkeypatch.setattr(collect, "load", lambda path, golden_cases: model)
    board = small_board(16 << 10)
    profile = DeviceProfile("bands", board, board.hardware, 1)
    apart = tasks_in([Path("model.onnx")], profile)
    every = tasks_in([Path("model.onnx")], profile, in_bands=True)
    assert apart.keys() < every.keys()
    assert [every[key].space.rule.name for key in every.keys() - apart.keys()] == ["chain"]
