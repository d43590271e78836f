"""`sdk tune` and what deployments make of it, on the agent of this machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import psutil
import pytest
from onnx import helper

from host.commands.tune import tune_model
from host.deploy import DeployOptions
from host.places import records_file
from host.progress import Silence
from host.records import MODEL, Record, RecordStore
from host.records.choice import best_program
from sdk.cli.main import main
from tests.integration.small_models import floats, save


def perceptron(path: Path) -> Path:
    """Two layers with a ReLU between on 8x64."""
    draw = np.random.default_rng(0)
    weights = {
        "a": draw.normal(size=(64, 96)).astype(np.float32),
        "b": draw.normal(size=(96, 32)).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "b"], ["y"]),
    ]
    return save(path, nodes, [floats("x", 8, 64)], [floats("y", 8, 32)], weights)


def records() -> list[Record]:
    with RecordStore(records_file()) as store:
        return list(store)


def trials_of(some: Sequence[Record]) -> set[tuple[str, int | None]]:
    """Programs with the batch that they were measured in: a program is measured again in a later one only."""
    return {(one.candidate_key, one.origin.batch) for one in some}


def figures(path: Path) -> dict[str, object]:
    return dict(json.loads(path.read_text()))


def test_half_precision_is_tuned_for_deployments_in_half_precision(tmp_path: Path) -> None:
    model = perceptron(tmp_path / "net.onnx")
    half = ["--threads", "1", "--dtype", "fp16"]
    assert main(["tune", str(model), *half, "--trials", "2", "--no-train"]) == 0
    measured = {one.candidate.workload_hash for one in records() if not one.failure}
    deploy = ["compile", str(model), "--target", "local", "--backend", "tvm"]
    found = {}
    for dtype in ("fp16", "fp32"):
        folder = tmp_path / dtype
        assert main([*deploy, "--threads", "1", "--dtype", dtype, "--output", str(folder)]) == 0
        kernels = json.loads((folder / "manifest.json").read_text())["kernels"]
        found[dtype] = {one["task"] for one in kernels if one["from_database"]}
    assert measured and found == {"fp16": measured, "fp32": set()}


def references(kept: Sequence[Record]) -> int:
    """How many of the records are the first of their task inside of a model: they count against no budget."""
    return len({one.candidate.workload_hash for one in kept if one.origin.measured_in == MODEL})


def test_a_gpu_that_is_not_there_is_not_tuned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = perceptron(tmp_path / "net.onnx")
    assert main(["tune", str(model), "--processor", "gpu", "--trials", "1"]) == 2
    assert "--processor gpu: " in capsys.readouterr().err
    assert records() == []


def test_what_is_tuned_is_deployed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = perceptron(tmp_path / "net.onnx")
    command = ["tune", str(model), "--threads", "1", "--trials", "12", "--json", str(tmp_path / "t.json")]
    assert main(command) == 0
    kept = records()
    tuned = figures(tmp_path / "t.json")
    # Every job times the references: they count against no budget.
    assert len(kept) == tuned["measured_now"] == 12 + references(kept)
    assert tuned["trials"] == 12
    assert all(one.measurement.median_s > 0 for one in kept if not one.failure)
    assert {one.origin.measured_in for one in kept} == {MODEL}
    for key in ("command", "versions", "model", "task", "device", "host", "sentence"):
        assert all(getattr(one.origin, key) for one in kept), key
    assert "12 trials" in capsys.readouterr().out
    assert "Who won what" in (Path("edgetlm-out") / "net" / "tuning.html").read_text()
    # The same command has nothing left to do, and a deployment finds every kernel on record.
    assert main(command) == 0
    assert figures(tmp_path / "t.json")["measured_now"] == 0
    assert len(records()) == len(kept)
    deploy = ["deploy", str(model), "--threads", "1", "--backend", "tvm", "--json", str(tmp_path / "d.json")]
    assert main(deploy) == 0
    deployed = figures(tmp_path / "d.json")
    measured = {one.candidate.workload_hash for one in kept}
    tasks = [task for task in deployed["tasks"] if task["workload_hash"] in measured]  # type: ignore[attr-defined]
    assert len(tasks) >= 2
    for task in tasks:
        found = best_program(one for one in kept if one.candidate.workload_hash == task["workload_hash"])
        assert found is not None
        chosen = found[0].candidate.proposer
        assert (task["from_database"], task["source"]) == (True, chosen)
    assert deployed["tuning"] is None
    # A deployment with trials goes on with the same budget.
    assert main([*deploy, "--trials", "16"]) == 0
    more = figures(tmp_path / "d.json")["tuning"]
    assert isinstance(more, dict)
    assert (more["trials"], more["measured_now"], len(records())) == (16, 4, len(kept) + 4)


@pytest.mark.parametrize("method", ["gensor", "tlm", "random", "metaschedule"])
def test_a_method_proposes_alone_and_its_records_say_so(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = EntryPoint(
        "metaschedule", "research.baselines.proposer:MetaScheduleProposer", "edgetlm.proposers"
    )
    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda group: [entry] if group == entry.group else []
    )
    model = perceptron(tmp_path / "net.onnx")
    asked = ["--threads", "1", "--trials", "12", "--no-train", "--method", method]
    assert main(["tune", str(model), *asked, "--json", str(tmp_path / "t.json")]) == 0
    kept = records()
    assert len(kept) - references(kept) == figures(tmp_path / "t.json")["trials"] == 12
    assert {one.origin.tuning.rpartition("/")[2] for one in kept} == {method}
    # A task's first program is the reference, Gensor's, which the others are measured beside.
    assert {one.candidate.proposer for one in kept} == {"gensor", method}
    assert sum(one.candidate.proposer == method for one in kept) >= 6
    written_by = {one.origin.base for one in kept if one.candidate.proposer == "tlm"}
    assert all(written_by) and bool(written_by) is (method == "tlm")
    if method != "gensor":
        return
    # Another method has a budget of its own, and a deployment takes methods as well.
    other = ["--threads", "1", "--trials", "4", "--method", "random"]
    assert main(["deploy", str(model), *other, "--backend", "tvm"]) == 0
    assert len(records()) == len(kept) + 4


def test_a_method_that_is_not_there_is_refused_before_anything_is_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = perceptron(tmp_path / "net.onnx")
    assert main(["tune", str(model), "--trials", "2", "--method", "absent"]) == 2
    assert (
        "--method absent: there is no such proposer; use auto, gensor, tlm, random" in capsys.readouterr().err
    )


def test_a_tuning_needs_an_end_and_a_time_that_is_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = perceptron(tmp_path / "net.onnx")
    assert main(["tune", str(model)]) == 2
    assert "give --trials N or --budget 3m" in capsys.readouterr().err
    assert main(["tune", str(model), "--budget", "3"]) == 2
    assert "write a time as 90s, 3m or 1h" in capsys.readouterr().err
    assert not records_file().exists()


class Saboteur(Silence):
    """Ends the device's agent in the middle of a round."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.struck = False

    def advance(self, done: int, total: int) -> None:
        if (done, total) == (5, 12) and not self.struck:
            self.struck = True
            [agent] = [one for one in psutil.Process().children() if "serve" in one.cmdline()]
            agent.kill()
            agent.wait()

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_a_device_that_is_lost_in_mid_round_is_connected_again(tmp_path: Path) -> None:
    options = DeployOptions(perceptron(tmp_path / "net.onnx"), threads=1, trials=12)
    saboteur = Saboteur()
    result = tune_model(options, saboteur)
    assert saboteur.struck
    assert result.tuning.trials == len(records()) - references(records()) == 12
    assert not any(one.failure for one in records())
    assert [text for text in saboteur.notes if "went away" in text]
    assert "local is back" in saboteur.notes
