from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from onnx import helper

import sdk
from host import bundle
from host.compare import verification
from host.compare.backends import Choice
from host.deploy import DeployOptions, DeployResult, deploy
from host.errors import ModelFileError, VerifyError
from host.manifest import Manifest
from sdk.cli.main import main
from sdk.report.html import render
from tests.integration import small_models
from tests.integration.deploy.held_models import held_when_compared

ROOT = Path(sdk.__file__).parents[1]


def deployed(model: Path, out: Path, **options: object) -> DeployResult:
    """A deployment with few rounds."""
    return deploy(DeployOptions(model=model, threads=1, rounds=6, bundle=out, **options))  # type: ignore[arg-type]


def installed() -> list[dict[str, Any]]:
    with sdk.connect("local") as device:
        return device.bundles()


def active_hash() -> str:
    """Content hash of the only active version."""
    [one] = [one for one in installed() if one["active"]]
    return Manifest.model_validate(one["manifest"]).content_hash


def check_bundle(path: Path, backend: str) -> Manifest:
    """Load a bundle and run it on its golden inputs."""
    manifest = bundle.load(path)
    assert manifest.backend == backend
    cases = bundle.golden_cases(path, manifest)
    assert len(cases) == 3
    with sdk.load(path) as model:
        for case in cases:
            inputs = {
                spec.name: value for spec, value in zip(model.signature.inputs, case.inputs, strict=True)
            }
            outputs = model.run(inputs)
            for spec, golden in zip(model.signature.outputs, case.outputs, strict=True):
                np.testing.assert_allclose(outputs[spec.name], golden, rtol=1e-3, atol=1e-3)
    return manifest


def test_a_model_goes_all_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, held = small_models.convnet(tmp_path / "net.onnx"), held_when_compared(monkeypatch)
    result = deployed(model, tmp_path / "bundle", backend="tvm", command="sdk deploy net.onnx")
    assert held == [False]
    assert result.verification.passed
    assert 0 < result.verification.max_rel_err < 1e-4
    assert result.measurement.n >= 6
    assert set(result.contenders) == {"tvm", "onnxruntime"}
    assert set(result.ratios) == {"onnxruntime"}
    low, high = result.ratios["onnxruntime"][1:]
    assert low <= result.ratios["onnxruntime"][0] <= high
    assert result.measurement.energy.kind in ("measured", "unavailable")
    assert result.tasks
    assert all(task.latency_us and task.latency_us > 0 for task in result.tasks)
    assert any(task.source == "gensor" for task in result.tasks)
    for stage in ("import", "lower", "propose", "build", "verify", "measure", "install", "total"):
        assert result.seconds[stage] > 0
    manifest = check_bundle(tmp_path / "bundle", "tvm")
    assert manifest.command == "sdk deploy net.onnx"
    assert [kernel.latency_us for kernel in manifest.kernels] == [task.latency_us for task in result.tasks]
    assert manifest.measured["contenders"]["tvm"]["latency_ms"]["n"] == result.measurement.n
    [one] = installed()
    assert (one["name"], one["active"], one["backend"]) == ("net", True, "tvm")
    assert "gensor" in render(result)


def test_integer_inputs_unused_inputs_and_several_outputs(tmp_path: Path) -> None:
    result = deployed(small_models.embedding(tmp_path / "words.onnx"), tmp_path / "bundle", backend="tvm")
    assert result.verification.passed
    assert [spec.name for spec in result.signature.inputs] == ["tokens", "unused"]
    manifest = check_bundle(tmp_path / "bundle", "tvm")
    assert [spec.dtype for spec in manifest.signature.outputs] == ["float32", "int64"]


def test_the_library_alone_can_be_deployed(tmp_path: Path) -> None:
    model = small_models.convnet(tmp_path / "net.onnx")
    result = deployed(model, tmp_path / "bundle", backend="onnxruntime")
    assert result.choice.backend == "onnxruntime"
    assert result.tasks == ()
    check_bundle(tmp_path / "bundle", "onnxruntime")


def test_what_cannot_be_compiled_runs_in_its_own_runtime_and_says_why(tmp_path: Path) -> None:
    model = small_models.uncompiled_operator(tmp_path / "nonzero.onnx")
    result = deployed(model, tmp_path / "bundle")
    assert result.choice.backend == "onnxruntime"
    assert "NonZero" in result.fallback
    assert "NonZero" in result.choice.why
    manifest = bundle.load(tmp_path / "bundle")
    assert (manifest.backend, "NonZero" in manifest.reason) == ("onnxruntime", True)
    assert "NonZero" in render(result)


def with_a_wrong_kernel(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """From now on, a convolution of every compiled model is wrong; returns where its name will be."""
    import tvm

    from host.compile import static_model as compiling

    broken: list[str] = []
    right = compiling.each_scheduled

    def wrong(*arguments: object) -> Iterator[tuple[str, object]]:
        before = len(broken)
        for name, function in right(*arguments):  # type: ignore[arg-type]
            if "conv" in name and len(broken) == before:
                text = tvm.ir.save_json(function)
                assert "prim.Max" in text, "the convolution ends in a ReLU"
                function = tvm.ir.load_json(text.replace("prim.Max", "prim.Min"))
                broken.append(name)
            yield name, function

    monkeypatch.setattr(compiling, "each_scheduled", wrong)
    return broken


def test_a_wrong_kernel_is_found_on_a_board_of_another_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from host.execution import LocalEngine
    from host.tuning.runners.reach import HostedReach

    monkeypatch.setattr("host.deploy.deployment.open_reach", lambda *_: HostedReach(LocalEngine()))
    broken = with_a_wrong_kernel(monkeypatch)
    with pytest.raises(VerifyError) as refusal:
        deployed(small_models.convnet(tmp_path / "net.onnx"), tmp_path / "bundle", backend="tvm")
    assert f"first at kernel {broken[-1]}" in str(refusal.value)


def test_a_wrong_kernel_is_named_and_never_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = with_a_wrong_kernel(monkeypatch)
    model = small_models.convnet(tmp_path / "net.onnx")
    with pytest.raises(VerifyError) as refusal:
        deployed(model, tmp_path / "bundle", backend="tvm")
    assert "output 'scores' differs by" in str(refusal.value)
    assert f"first at kernel {broken[-1]}" in str(refusal.value)
    assert not (tmp_path / "bundle").exists()
    assert installed() == []
    result = deployed(model, tmp_path / "bundle")
    assert result.choice.backend == "onnxruntime"
    assert "tvm gives wrong outputs" in result.choice.why


def test_an_app_runs_the_bundle_with_the_agents_packages_alone(tmp_path: Path) -> None:
    sdk.compile(
        small_models.convnet(tmp_path / "net.onnx"), output=tmp_path / "bundle", threads=1, backend="tvm"
    )
    program = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("host", "sdk", "targets", "tvm", "torch", "onnxruntime", "pydantic"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Refuse())
import numpy as np
import device_agent.runtime
golden = np.load(sys.argv[1] + "/golden.npz")
model = device_agent.runtime.load(sys.argv[1])
outputs = model.run({"image": golden["case0_input0"]})
expected = golden["case0_output0"]
print(float(np.abs(outputs["scores"] - expected).max() / np.abs(expected).max()))
"""
    runtime = Path(importlib.util.find_spec("tvm").origin).parent / "lib" / "libtvm_runtime.so"  # type: ignore
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "EDGETLM_RUNTIME_LIB": str(runtime)}
    command = [sys.executable, "-c", program, str(tmp_path / "bundle")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1e-3


def test_versions_can_be_rolled_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in (1, 2):
        model = small_models.convnet(tmp_path / f"net{seed}.onnx", seed=seed)
        deployed(model, tmp_path / f"bundle{seed}", backend="tvm", name="net")
    first, second = (bundle.load(tmp_path / f"bundle{seed}") for seed in (1, 2))
    assert first.content_hash != second.content_hash
    assert active_hash() == second.content_hash
    assert main(["rollback", "net"]) == 0
    assert active_hash() == first.content_hash
    capsys.readouterr()
    assert main(["bundles"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert sum("net" in line for line in listed) == 2
    assert sum("active" in line for line in listed) == 1
    assert main(["rollback", "absent"]) != 0
    # The active one runs by its name.
    [case, *_] = bundle.golden_cases(tmp_path / "bundle1", first)
    with sdk.load("net") as active:
        [output] = active.run(case.inputs[0]).values()
    np.testing.assert_allclose(output, case.outputs[0], rtol=1e-3, atol=1e-3)
    with pytest.raises(ModelFileError, match="local has no model of this name"):
        sdk.load("absent")


def test_a_zip_can_be_deployed_run_and_profiled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = tmp_path / "net.zip"
    deployed(small_models.convnet(tmp_path / "net.onnx"), archive, backend="tvm")
    np.savez(tmp_path / "x.npz", image=np.ones((1, 3, 16, 16), np.float32))
    capsys.readouterr()
    command = ["run", str(archive), "--input", str(tmp_path / "x.npz"), "-o", str(tmp_path / "y.npz")]
    assert main(command) == 0
    assert "scores  float32[1, 10]" in capsys.readouterr().out
    assert np.load(tmp_path / "y.npz")["scores"].shape == (1, 10)
    assert main(["profile", str(archive), "--json", str(tmp_path / "figures.json")]) == 0
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["verify"]["passed"] is True
    assert figures["installed"] is False
    assert all(task["latency_us"] > 0 for task in figures["tasks"])


def test_a_torch_module_is_deployed_from_the_api(tmp_path: Path) -> None:
    import torch

    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(24, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    manifest = sdk.compile(
        module, example_inputs=(torch.zeros(1, 24),), output=tmp_path / "bundle", threads=1
    )
    assert manifest.backend == "tvm"
    assert manifest.origin.format == "pt2"
    check_bundle(tmp_path / "bundle", "tvm")


def test_compiling_for_another_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = small_models.convnet(tmp_path / "net.onnx")
    command = ["compile", str(model), "--threads", "2"]
    assert main([*command, "--target", "x86_64-v3", "-o", str(tmp_path / "b")]) == 0
    manifest = bundle.load(tmp_path / "b")
    assert manifest.target["mcpu"] == "x86-64-v3"
    assert manifest.threads == 2
    assert manifest.measured == {}
    assert main([*command, "--target", "pdp11", "-o", str(tmp_path / "c")]) == 2
    assert "no target 'pdp11'" in capsys.readouterr().err


def test_the_same_seed_gives_the_same_bundle(tmp_path: Path) -> None:
    model = small_models.convnet(tmp_path / "net.onnx")
    hashes = [
        sdk.compile(model, output=tmp_path / name, threads=1, seed=3).content_hash for name in ("a", "b")
    ]
    assert hashes[0] == hashes[1]


def test_an_interrupted_deployment_leaves_nothing(tmp_path: Path) -> None:
    model = small_models.convnet(tmp_path / "net.onnx")
    command = [sys.executable, "-u", "-m", "sdk.cli", "deploy", str(model), "--bundle", str(tmp_path / "out")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("verify"):
                break
        children = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert errors.strip() == "error: interrupted"
    assert len(children) >= 2, "the agent and an executor ran"
    assert psutil.wait_procs(children, timeout=60)[1] == []
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.rglob("*.part"))
    assert installed() == []


def test_the_command_line_prints_what_was_found(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = small_models.convnet(tmp_path / "net.onnx")
    arguments = ["--json", "out/figures.json", "--report", "out/report.html", "--bundle", "out/bundle"]
    assert main(["deploy", str(model), "--device", "local", "--threads", "1", *arguments]) == 0
    printed = capfd.readouterr()
    assert printed.err == ""
    figures = json.loads(Path("out/figures.json").read_text())
    assert figures["backend"] in ("tvm", "onnxruntime")
    assert figures["verify"]["passed"] is True
    assert f"{figures['latency_ms']['median']:.3f} ms" in printed.out
    for words in ("onnxruntime", "verified", "Power", "out/bundle", "out/report.html"):
        assert words in printed.out
    assert {path.name for path in Path("out").glob("report*")} == {"report.html", "report.svg"}
    check_bundle(Path("out/bundle"), figures["backend"])


def test_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "list"]) == 0
    assert capsys.readouterr().out.startswith("local")
    assert main(["env"]) == 0
    shown = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    with sdk.connect("local") as device:
        sensor = device.sensor()
    assert (sensor["unavailable"] or sensor["source"]) in shown["energy"]
    assert "0.27" in shown["apache-tvm"]
    assert "available" in shown["onnxruntime"] or "1." in shown["onnxruntime"]
    assert main(["env", "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    [found] = [row["value"] for row in rows if (row["section"], row["name"]) == ("host", "apache-tvm")]
    assert found == shown["apache-tvm"].split()[1]


def test_verification_of_the_same_session_is_repeatable(tmp_path: Path) -> None:
    sdk.compile(small_models.convnet(tmp_path / "net.onnx"), output=tmp_path / "bundle", threads=1)
    manifest = bundle.load(tmp_path / "bundle")
    cases = bundle.golden_cases(tmp_path / "bundle", manifest)
    with sdk.connect("local") as device, device.open_session("tvm") as session:
        session.load(tmp_path / "bundle")
        verdicts = [verification.verify(session, manifest.typed_signature(), cases)[0] for _ in range(2)]
    assert verdicts[0] == verdicts[1]
    assert verdicts[0].passed


def test_trials_measure_kernels_and_later_deployments_use_them(tmp_path: Path) -> None:
    from host.places import records_file
    from host.records import RecordStore

    model = small_models.convnet(tmp_path / "net.onnx")
    tuned = deployed(model, tmp_path / "a", backend="tvm", trials=8, install=False)
    assert tuned.verification.passed
    with RecordStore(records_file()) as store:
        records = list(store)
    # And the references, which count against no budget.
    tasks = len({record.candidate.workload_hash for record in records})
    assert tasks < len(records) <= 8 + tasks
    assert all(record.measurement.median_s > 0 for record in records)
    later = deployed(model, tmp_path / "b", backend="tvm", install=False)
    assert later.verification.passed
    measured = {record.candidate.workload_hash for record in records}
    assert {task.workload_hash for task in later.tasks if task.from_database} == measured
    proposers = {record.candidate.proposer for record in records}
    assert (
        {task.source for task in later.tasks if task.from_database}
        <= proposers
        <= {"gensor", "random", "bayesian", "tlm"}
    )


def test_plans_are_measured_as_whole_models_and_the_taken_one_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = {"w": np.random.default_rng(0).normal(size=(16, 16, 3, 3)).astype(np.float32)}
    node = helper.make_node("Conv", ["image", "w"], ["out"], pads=[1, 1, 1, 1])
    interface = [small_models.floats("image", 1, 16, 16, 16)], [small_models.floats("out", 1, 16, 16, 16)]
    model = small_models.save(tmp_path / "net.onnx", [node], *interface, weights)
    records = str(tmp_path / "records.db")
    options = {"backend": "tvm", "records": records}
    result = deployed(model, tmp_path / "bundle", plans=1, **options)
    assert result.plan is not None
    assert len(result.plan.trials) == 2
    [taken] = [one.proposed.plan for one in result.plan.trials if one.taken]
    assert result.plan.plan == taken
    assert result.verification.passed
    assert all(line in render(result) for line in ("The plan of the whole model", taken.name))
    manifest = check_bundle(tmp_path / "bundle", "tvm")
    assert manifest.measured["plan"]["hash"] == taken.hash
    again = deployed(model, tmp_path / "again", **options)
    assert again.plan is not None
    assert (again.plan.plan, again.plan.trials) == (taken, ())
    # The bundle of another runtime has no plan.
    library = Choice("onnxruntime", "it is faster")
    monkeypatch.setattr("host.deploy.deployment.select_backend", lambda *_: library)
    assert deployed(model, tmp_path / "library", **options).plan is None
    assert "plan" not in check_bundle(tmp_path / "library", "onnxruntime").measured
