"""The replay finds what changed, at the stage where it begins, and nothing where nothing did."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tvm
import tvm_ffi

from benchmarks.result_file import read_result
from benchmarks.tables.device import process_replay
from host.schedules.cpu.tiled import rule
from host.schedules.families import installed_rules
from tests.replay import adapter, base, recorder, unit
from tests.replay.__main__ import COMMITTED, main
from tests.replay.codegen import Calls, watched
from tests.replay.compare import compare, differences, report, unversioned
from tests.replay.recorder import ReplayError, lines_text
from tests.replay.subjects import BYTES, CODE, KINDS, PROGRAMS, Unit, units
from tests.replay.texts import TextStore
from tests.replay.unit import OF_THE_MACHINE, STAGES, TARGET, Line, Places

_SUBJECT = Unit("operator/softmax_8x50x50", "x86_64-v3", BYTES, drawn=1)
_KERNEL = (_SUBJECT.subject, _SUBJECT.target, "fused_softmax")
_DEPTHWISE = Unit("operator/depthwise_3x3_s2_144_56", "x86_64-v4", PROGRAMS, drawn=16, threads=1)


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Places]:
    unit._imported.cache_clear()
    yield Places(tmp_path / "texts", tmp_path / "models", tmp_path / "objects")
    unit._imported.cache_clear()


def _annotated(function: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc:
    """The same function but for one hint of its outermost loop."""

    def visit(loop: tvm.tirx.For) -> tvm.tirx.For:
        note = {**dict(loop.annotations), "pragma_changed": tvm.tirx.IntImm("int32", 1)}
        return tvm.tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, loop.body, annotations=note)

    return function.with_body(tvm_ffi.structural_map(function.body, (tvm.tirx.For, visit)))


def test_the_same_tree_gives_no_difference_twice(places: Places) -> None:
    first = unit.record(_SUBJECT, places)
    unit._imported.cache_clear()
    assert [line["kernel"] for line in first] == ["", "fused_softmax"]
    assert not any("failed" in line for line in first)
    assert differences(first, unit.record(_SUBJECT, replace(places, objects=None))) == []


def _changed(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    """Have every kernel come out of the product with other fields."""
    made = adapter._kernel

    def changed(*given: Any) -> adapter.Kernel:
        kernel = made(*given)
        return replace(kernel, **{name: change(getattr(kernel, name)) for name, change in fields.items()})

    monkeypatch.setattr(adapter, "_kernel", changed)


def test_a_changed_program_is_found_at_its_schedule(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    before = unit.record(_SUBJECT, places)
    _changed(monkeypatch, function=_annotated)
    [found] = differences(before, unit.record(_SUBJECT, places))
    # A hint that no pass looks at: the code is the same, but for the note itself.
    assert (found.key, found.stage) == (_KERNEL, "scheduled")
    text = report([found], TextStore(places.texts), 1)
    assert "1 differ first in scheduled" in text
    assert any("pragma_changed" in line for line in text.splitlines() if line.startswith("+"))


def test_a_program_that_is_not_chosen_is_looked_at_too(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = unit.record(_SUBJECT, places)

    def other(drawn: tuple[adapter.Program, ...]) -> tuple[adapter.Program, ...]:
        return tuple(replace(program, function=_annotated(program.function)) for program in drawn)

    _changed(monkeypatch, drawn=other)
    [found] = differences(before, unit.record(_SUBJECT, places))
    assert (found.key, found.stage, found.later) == (_KERNEL, "drawn", ())


def test_other_programs_of_the_same_decisions_are_found_without_a_new_version(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of the depthwise convolutions whose panels became loops, which were few of the decisions."""
    before = unit.record(_DEPTHWISE, places)
    assert unversioned(before, unit.record(_DEPTHWISE, places)) == {}
    [of_tiled] = [one for one in installed_rules() if one.name == "tiled"]
    monkeypatch.setattr(rule, "_panels_in_bounds", lambda *given: True)
    after = unit.record(_DEPTHWISE, places)
    assert unversioned(before, after) == {
        "tiled": [f"{_DEPTHWISE.subject} on x86_64-v4, fused_depthwise_conv_add"]
    }
    monkeypatch.setattr(type(of_tiled), "version", of_tiled.version + 1)
    assert unversioned(before, unit.record(_DEPTHWISE, places)) == {}


def test_another_estimate_or_task_is_no_other_program(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = unit.record(_SUBJECT, places)
    says = adapter._says
    monkeypatch.setattr(adapter, "_says", lambda candidate: {**says(candidate), "estimate_us": 1.0})
    assert unversioned(before, unit.record(_SUBJECT, places)) == {}
    _changed(monkeypatch, lowered=_annotated, function=_annotated)
    assert unversioned(before, unit.record(_SUBJECT, places)) == {}


def test_the_committed_recording_is_not_rewritten_for_programs_without_a_new_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def line(program: str) -> Line:
        says = {"rule": "tiled", "decisions": {"rows": 4}}
        return {
            **_line(lowered="1", scheduled=program),
            "says": says,
            "version": 5,
            "programs": {"4": program},
        }

    def make(name: str, out: Path, *given: Any, **more: Any) -> None:
        _recording(out, [line("3")])

    committed = _recording(tmp_path / "committed", [line("2")])
    monkeypatch.setattr("tests.replay.__main__.COMMITTED", committed)
    monkeypatch.setattr(recorder, "make", make)
    command = ["update", "--cache", str(tmp_path / "cache")]
    before = committed.read_text()
    assert main(command) == 2
    assert "rule tiled: the same decisions are other programs" in capsys.readouterr().err
    assert committed.read_text() == before
    assert main([*command, "--same-version", "tiled"]) == 0
    assert '"programs": {"4": "3"}' in committed.read_text()


def test_another_estimate_is_found_at_the_decisions(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    before = unit.record(_SUBJECT, places)
    says = adapter._says
    monkeypatch.setattr(
        adapter, "_says", lambda candidate: {**says(candidate), "estimate_us": candidate.estimate_s * 1.01e6}
    )
    [found] = differences(before, unit.record(_SUBJECT, places))
    assert (found.key, found.stage, found.later) == (_KERNEL, "decisions", ("drawn",))


def test_a_changed_lowering_is_found_before_all_that_follows(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = unit.record(_SUBJECT, places)
    _changed(monkeypatch, lowered=_annotated, function=_annotated)
    [found] = differences(before, unit.record(_SUBJECT, places))
    assert (found.key, found.stage) == (_KERNEL, "lowered")
    assert found.later[0] == "scheduled"


def test_a_change_of_code_generation_is_found_behind_the_schedule(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = unit.record(_SUBJECT, places)
    compile_kernel = adapter.compile_kernel

    def aliasing(function: tvm.tirx.PrimFunc, target: str) -> dict[str, bytes]:
        return compile_kernel(function.with_attr("tirx.noalias", False), target)

    monkeypatch.setattr(adapter, "compile_kernel", aliasing)
    [found] = differences(before, unit.record(_SUBJECT, places))
    assert (found.key, found.stage, found.later) == (_KERNEL, "code", ("object",))


def test_what_cannot_be_compiled_is_said_and_compared(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: Any) -> Any:
        raise ValueError("no such thing")

    before = unit.record(_SUBJECT, places)
    monkeypatch.setattr(adapter, "lower", refuse)
    after = unit.record(_SUBJECT, places)
    assert after[0]["failed"] == "ValueError: no such thing"
    assert [one.remark or one.stage for one in differences(before, after)] == [
        "only in the old recording",
        "target",
    ]


def _dies_on_a_board(unit: Unit, places: Places) -> list[Line]:
    if unit.target == "rv64gcv":
        os._exit(11)
    return [{"subject": unit.subject, "target": unit.target, "kernel": "", "stages": {}}]


def _batch_that_dies(batch: list[Unit], parts: Path, places: Places) -> None:
    recorder.record = _dies_on_a_board
    _BATCH(batch, parts, places)


_BATCH = recorder._record_batch


def test_a_crash_of_the_compiler_is_one_units_failure(
    tmp_path: Path, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "_record_batch", _batch_that_dies)
    # Nothing is compiled: processes need no compilers of their own, which take seconds to load.
    forked = multiprocessing.get_context("fork")
    monkeypatch.setattr(recorder.multiprocessing, "get_context", lambda _: forked)
    boards = ("x86_64-v3", "rv64gcv", "raspberry_pi_4")
    wanted = [Unit("small/convnet", target) for target in boards] + [Unit("small/embedding", "x86_64-v3")]
    recorder._work(wanted, tmp_path, places, 2)
    found = [json.loads(recorder._part(tmp_path, unit).read_text())[0] for unit in wanted]
    assert [line.get("failed", "") for line in found] == ["", "the process died", "", ""]
    assert not list(tmp_path.glob("*.started"))


def test_a_kernel_that_no_code_generator_saw_is_no_kernel() -> None:
    with watched(None, build=False), pytest.raises(RuntimeError, match="wrong place"):
        Calls().text  # noqa: B018 - the property checks


def _recording(path: Path, lines: list[Line], **header: Any) -> Path:
    known = {"format": recorder.FORMAT, "set": "small", "versions": {}, "machine": "one"}
    path.write_text(lines_text([{**known, **header}, *lines]))
    return path


def _line(**stages: str) -> Line:
    return {"subject": "model", "target": "board", "kernel": "f", "stages": stages}


def test_the_command_compares_two_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = TextStore(tmp_path / "cache" / "texts")
    old = _line(lowered="1", scheduled=store.keep("for i in 4\n"), object="2")
    new = _line(lowered="1", scheduled=store.keep("for i in 8\n"), object="3")
    files = [_recording(tmp_path / name, [line]) for name, line in (("old", old), ("new", new))]
    cache = ["--cache", str(tmp_path / "cache")]
    assert main(["compare", *map(str, files), *cache]) == 1
    printed = capsys.readouterr().out
    assert "1 differ first in scheduled" in printed
    assert "model on board, f: scheduled (then object)" in printed
    assert "-for i in 4" in printed and "+for i in 8" in printed
    assert main(["compare", str(files[0]), str(files[0]), *cache]) == 0
    files[1].write_text("nothing\n")
    assert main(["compare", *map(str, files), *cache]) == 2


def test_numbers_of_another_machine_are_not_compared(tmp_path: Path) -> None:
    old = _recording(tmp_path / "old", [_line(parameters="1", lowered="2")])
    for machine, same in (("one", False), ("any", True)):
        new = _recording(tmp_path / "new", [_line(parameters="3", lowered="2")], machine=machine)
        assert (not compare(old, new, tmp_path).differences) is same


def test_a_result_says_what_was_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the subjects that were asked for, with the figures that docs/process-replay.md shows."""
    asked = []
    model = {**_line(main="1", manifest="2"), "kernel": ""}
    target = {**model, "subject": TARGET, "stages": {"target": "1"}}

    def of_commit(commit: str, name: str, cache: Path, jobs: int, only: str) -> Path:
        asked.append((name, only))
        return _recording(tmp_path / "old", [model, target, _line(lowered="1", object="2")])

    def made(name: str, out: Path, cache: Path, jobs: int, resume: bool, only: str) -> None:
        asked.append((name, only))
        out.parent.mkdir()
        _recording(out, [model, target, {**_line(lowered="3", object="4"), "failed": "no"}])

    monkeypatch.setattr(base, "record_commit", of_commit)
    monkeypatch.setattr(base, "is_clean", lambda: False)
    monkeypatch.setattr(recorder, "make", made)
    result = tmp_path / "result.json"
    command = f"against --base HEAD --set small --only mod --cache {tmp_path} --json {result}"
    assert main(command.split()) == 1
    assert asked == [("small", "mod")] * 2
    found = read_result(result)
    assert found.schema == "edgetlm.replay/1"
    assert {**found.figures, "base": ""} == {
        "set": "small",
        "only": "mod",
        "base": "",
        "lines": 3,
        "targets": 1,
        "models_on_targets": 1,
        "kernels": 1,
        "bundles": 1,
        "not_compiled": 1,
        "differences": {"lowered": 1},
    }
    assert process_replay(found)[-1] == "| differences | 1 first in lowered |"


def test_two_commits_of_history_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are recorded from their own trees; the working tree has no part in it."""

    def of_commit(commit: str, name: str, cache: Path, jobs: int, only: str) -> Path:
        return _recording(tmp_path / commit, [_line(lowered=commit)])

    monkeypatch.setattr(base, "commit_of", {"old": "1" * 40, "new": "2" * 40}.__getitem__)
    monkeypatch.setattr(base, "record_commit", of_commit)
    monkeypatch.setattr(recorder, "make", lambda *given, **more: pytest.fail("the working tree was recorded"))
    result = tmp_path / "result.json"
    command = f"against --base old --head new --cache {tmp_path} --json {result}"
    assert main(command.split()) == 1
    figures = read_result(result).figures
    assert (figures["base"], figures["head"], figures["differences"]) == ("1" * 40, "2" * 40, {"lowered": 1})
    assert process_replay(read_result(result))[0].startswith("| set full, 1111111111 to 2222222222")
    assert main(["against", "--base", "old", "--head", "old", "--cache", str(tmp_path)]) == 0


def test_a_later_commit_that_does_not_exist_is_said_before_the_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(base, "record_commit", lambda *given: pytest.fail("it was recorded"))
    assert main(["against", "--base", "HEAD", "--head", "no-such-commit"]) == 2
    assert "no-such-commit" in capsys.readouterr().err


def test_one_recording_has_what_the_other_lacks(tmp_path: Path) -> None:
    gone, kept = _line(lowered="1"), {**_line(lowered="1"), "kernel": "g"}
    found = differences([gone, kept], [kept, {**kept, "kernel": "h"}])
    assert [one.title for one in found] == [
        "model on board, f: only in the old recording",
        "model on board, h: only in the new recording",
    ]


def test_another_product_than_the_checkouts_is_refused(tmp_path: Path) -> None:
    recorder.check_origin()
    with pytest.raises(ReplayError, match="comes from"):
        recorder.check_origin(tmp_path)


def test_a_folder_named_first_goes_before_an_installed_product(tmp_path: Path) -> None:
    for name in adapter.PACKAGES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    lines = f"import importlib\nfor name in {adapter.PACKAGES}: print(importlib.import_module(name).__file__)"
    done = subprocess.run(
        [sys.executable, "-c", lines],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert {Path(line).parents[1] for line in done.stdout.split()} == {tmp_path}


def test_the_recorder_of_today_runs_the_adapter_of_then(tmp_path: Path) -> None:
    place = tmp_path / "tests" / "replay"
    base._lay_over(tmp_path)
    assert (place / "adapter.py").read_text() == Path(adapter.__file__).read_text()
    assert not (place / Path(__file__).name).exists()
    (place / "adapter.py").write_text("then")
    base._lay_over(tmp_path)
    assert (place / "adapter.py").read_text() == "then"


def test_a_set_has_every_unit_once_and_every_target() -> None:
    for name in ("small", "full", "all"):
        found = units(name)
        keys = [(one.subject, one.target) for one in found]
        assert len(set(keys)) == len(keys)
        assert name == "small" or {one.target for one in found} == set(adapter.target_names())
        assert {one.depth for one in found} <= {PROGRAMS, CODE, BYTES}
    assert set(KINDS) <= set(adapter.target_names())


def test_the_committed_recording_holds_for_any_machine() -> None:
    header, lines = recorder.read(COMMITTED)
    assert header["machine"] == "any"
    assert not any(OF_THE_MACHINE & set(line["stages"]) for line in lines)
    assert all(set(line["stages"]) <= set(STAGES) for line in lines)
    assert not any("failed" in line for line in lines)


@pytest.mark.timeout(600)
def test_programs_are_those_of_the_committed_recording(tmp_path: Path) -> None:
    """If they changed and that is meant: `python -m tests.replay update`."""
    root = recorder.ROOT
    command = [sys.executable, "-m", "tests.replay", "check", "--cache", str(tmp_path), "--jobs", "2"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert json.loads(COMMITTED.read_text().splitlines()[0])["set"] == "small"
