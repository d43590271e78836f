"""`sdk explain` from a bundle to a picture in a browser."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import sdk
from host import bundle
from host.commands.explain import explain
from host.compile.stored_tasks.file import read_task
from host.records import MODEL, Record, RecordOrigin, RecordStore
from host.sandbox import Worker
from host.schedules import space_for
from sdk.cli.main import main
from tests.browser import drawn, page_in_browser
from tests.integration import small_models
from tests.signing import entry, reseal
from tests.unit.learned_estimate.test_estimate import drawn as drawn_programs
from tests.unit.tuning.simulated import measured


@pytest.fixture
def compiled(tmp_path: Path) -> Path:
    model = small_models.convnet(tmp_path / "net.onnx")
    sdk.compile(model, output=tmp_path / "bundle", target="raspberry_pi_4", threads=1, backend="tvm")
    return tmp_path / "bundle"


def test_a_kernel_is_explained_from_its_bundle_alone(
    compiled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a worker that reads the task; the other tests here read theirs without one."""
    monkeypatch.setattr("host.compile.stored_tasks.file.Worker", Worker)
    kernel = next(k for k in bundle.load(compiled).kernels if k.rule == "tiled" and "conv" in k.name)
    picture = tmp_path / "picture.html"
    assert main(["explain", str(compiled), "--task", kernel.name, "-o", str(picture)]) == 0
    printed = capsys.readouterr().out
    assert f"{kernel.name}: gensor, rule tiled" in printed
    assert "steps to this one" in printed
    found = explain(compiled, kernel.name)
    page = page_in_browser(picture, tmp_path / "profile")
    walks = {step.walk for step in found.steps if step.walk >= 0}
    assert drawn(page, "walk", "line") == len(walks) + 1, "every walk, and the path"
    assert drawn(page, "benefits", "point") > len(found.path)
    levels = found.roofline.hardware.levels
    assert drawn(page, "roofline", "line") == 1 + len(levels) + 1, "the peak, the levels and the path"
    assert drawn(page, "shares", "bar") == len(found.shares)
    assert "T.prim_func" in page
    assert kernel.layers and all(f"<code>{layer.name}</code>" in page for layer in kernel.layers)
    assert f"computes  {kernel.layers[0].text}" in printed
    assert "Raspberry Pi 4" in page


def test_the_explanation_is_of_the_very_program_that_was_built(compiled: Path) -> None:
    for kernel in bundle.load(compiled).kernels:
        found = explain(compiled, kernel.name)
        assert found.remark == ""
        assert found.path[-1].state.decisions == kernel.decisions
        assert (
            found.path[-1].cost_s == found.roofline.estimate_s == read_task(compiled, kernel.task).estimate_s
        )
        roofline = found.roofline
        assert roofline.measured_s is None
        assert roofline.hardware.frequency_hz == 1.8e9
        assert roofline.bytes_moved["DRAM"] > 0


def test_measured_kernels_and_zipped_bundles(tmp_path: Path) -> None:
    model = small_models.convnet(tmp_path / "net.onnx")
    result = sdk.deploy(model, threads=1, backend="tvm", bundle=tmp_path / "net.zip", peers=()).result
    task = max(result.tasks, key=lambda task: task.flops)
    found = explain(tmp_path / "net.zip", task.name)
    assert task.latency_us is not None
    assert found.roofline.measured_s == pytest.approx(task.latency_us * 1e-6)
    assert found.roofline.flops == task.flops


def test_mistakes_are_one_line(compiled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [kernel.name for kernel in bundle.load(compiled).kernels]
    assert main(["explain", str(compiled), "--task", "nonsense"]) == 2
    error = capsys.readouterr().err
    assert "no kernel is called 'nonsense'" in error
    assert all(name in error for name in names)
    assert main(["explain", str(compiled), "--task", "fused"]) == 2
    assert "several kernels fit" in capsys.readouterr().err
    assert main(["explain", str(tmp_path / "absent"), "--task", "x"]) == 2
    assert "no such file" in capsys.readouterr().err


def test_bundles_without_or_with_damaged_tasks_are_refused(
    compiled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = bundle.load(compiled).kernels[0].name
    files = json.loads((compiled / "manifest.json").read_text())["files"]
    path = compiled / "tasks.json"
    whole = path.read_text()
    for text in (whole.replace("edgetlm.tasks/2", "edgetlm.tasks/0"), whole[:200]):
        path.write_text(text)
        reseal(compiled, files={**files, "tasks.json": entry(text.encode())})
        assert main(["explain", str(compiled), "--task", name]) == 1
        assert capsys.readouterr().err.count("\n") == 1
    path.unlink()
    del files["tasks.json"]
    reseal(compiled, files=files)
    assert main(["explain", str(compiled), "--task", name]) == 2
    assert "holds no tasks.json" in capsys.readouterr().err


def test_the_tasks_are_no_part_of_what_runs(compiled: Path, tmp_path: Path) -> None:
    manifest = bundle.load(compiled)
    assert "tasks.json" in manifest.files
    model = small_models.convnet(tmp_path / "net.onnx")
    again = sdk.compile(
        model, output=tmp_path / "again", target="raspberry_pi_4", threads=1, backend="tvm", seed=0
    )
    assert again.content_hash == manifest.content_hash


def test_an_explanation_is_written_for_programs(
    compiled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = bundle.load(compiled).kernels[0].name
    page = str(tmp_path / "page.html")
    assert main(["explain", str(compiled), "--task", name, "-o", page, "--format", "json"]) == 0
    rows = {row["name"]: row["value"] for row in json.loads(capsys.readouterr().out)}
    assert rows["kernel"] == name and rows["flops"] > 0 and rows["estimate_us"] > 0
    assert any(key.startswith("decision ") for key in rows)
    kernel, path, *taught = sdk.explain(compiled, name, page)[0].tables()
    assert dict(kernel.rows)["kernel"] == name
    assert len(path.rows[0]) == len(path.columns)
    assert len(taught) > 2 and all(table.rows == () for table in taught), "nothing was measured"


def test_a_board_that_has_taught_nothing_is_named_in_what_to_type(tmp_path: Path) -> None:
    model = small_models.convnet(tmp_path / "net.onnx")
    sdk.compile(model, output=tmp_path / "local", threads=1, backend="tvm", seed=0)
    taught = explain(tmp_path / "local", bundle.load(tmp_path / "local").kernels[0].name).taught
    assert taught is not None and "sdk deploy MODEL --device local --trials 300" in taught.remark


def test_what_the_board_has_taught_is_shown(
    compiled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = next(k for k in bundle.load(compiled).kernels if k.rule == "tiled" and "conv" in k.name)
    command = ["explain", str(compiled), "--task", kernel.name, "-o", str(tmp_path / "page.html")]
    assert main(command) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("taught")]
    # Nothing is measured on a target.
    assert "of target raspberry_pi_4: sdk deploy MODEL --device NAME --trials 300" in line
    with monkeypatch.context() as patch:
        # Before the kernel is read, which imports the compiler.
        patch.setattr("host.commands.explain.read_task", pytest.fail)
        assert main([*command, "--records", str(tmp_path / "absent.sqlite")]) == 2
    assert "no records there" in capsys.readouterr().err
    stored = read_task(compiled, kernel.task)
    space = space_for(stored.task, stored.profile.hardware, stored.profile.threads)
    path = tmp_path / "r.sqlite"
    with RecordStore(path) as store:
        for values in drawn_programs(space, 20, seed=0):
            origin = RecordOrigin(model="other", measured_in=MODEL, estimate_parts_s=space.estimated(values))
            candidate = replace(space.candidate(values, "random"), workload_hash="another")
            time = measured(2.0 * space.estimate_s(values))
            store.append([Record(candidate, stored.recorded, time, "2026-11-20T10:00", origin)])
    assert main([*command, "--records", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "rule tiled: 20 measured programs of 1 model since 2026-11-20; too few kernels to judge" in printed
    [line] = [line for line in printed.splitlines() if line.split()[:2] == [kernel.name, "T"]]
    assert "T_hat" in line
    page = (tmp_path / "page.html").read_text()
    assert "What the board has taught" in page and "<td>2026-11-20</td>" in page
    assert main([*command, "--records", str(path), "--format", "json"]) == 0
    rows = {row["name"]: row["value"] for row in json.loads(capsys.readouterr().out)}
    assert (rows["taught tiled programs"], rows["taught tiled used"]) == (20, False)
    assert rows[f"estimates {kernel.name} estimate_us"] > 0 < rows[f"estimates {kernel.name} learned_us"]
