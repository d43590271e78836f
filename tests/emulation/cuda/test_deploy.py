"""`sdk deploy` to a machine with an emulated GPU: chosen, tuned, installed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import targets.x86_64
from host.build.cuda.nvrtc import Cubin, Nvrtc
from host.compile.variants import FASTEST, GPU
from host.deploy import DeployOptions, deploy
from host.errors import BuildError
from host.places import records_file
from host.progress import Silence
from host.records import RecordStore
from targets import Board, MachineDescription
from targets.nvidia import ORIN_NANO
from tests.deployments.own_files import read_here
from tests.deployments.short_rounds import shorten
from tests.emulation.cuda import emulated
from tests.integration.small_models import convnet, encoder
from tests.unit.importers.decoders.models import save


class Notes(Silence):
    """Progress that keeps what it is told."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This machine has the GPU of an Orin Nano, and its agent finds CUDA 12.6."""
    emulated.take_the_place_of_nvrtc(monkeypatch)
    for name, value in emulated.machine_with_gpu(tmp_path / "machine").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("EDGETLM_STORE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    real = targets.x86_64.resolve

    def resolve(description: MachineDescription, restrict: str = "") -> Board:
        return replace(real(description, restrict), gpu=ORIN_NANO)

    monkeypatch.setattr(targets.x86_64, "resolve", resolve)
    monkeypatch.setattr("device_agent.board.jetson.software", lambda root: {"cuda": "12.6"})
    monkeypatch.setattr("host.transport.device.Device.describe", _with_cuda())
    shorten(monkeypatch)
    read_here(monkeypatch)
    yield


def _with_cuda() -> Any:
    from host.transport.device import Device

    real = Device.describe

    def describe(self: Device) -> MachineDescription:
        found = real(self)
        return replace(found, software={**found.software, "cuda": "12.6"})

    return describe


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_language_model_is_verified_and_installed(tmp_path: Path) -> None:
    """Its steps beside transformers, with weights of 4 bits, and what the bundle says."""
    save(tmp_path / "tiny", "qwen2")
    terms = DeployOptions(
        model=tmp_path / "tiny", backend="tvm", processor="gpu", quantize="int4", context_tokens=32, rounds=6,
        threads=1,
    )  # fmt: skip
    result = deploy(terms, Notes())
    assert result.contenders["tvm"].verification.passed
    manifest = json.loads((result.bundle / "manifest.json").read_text())
    assert manifest["target"]["kind"] == "cuda"
    assert {"cuda_cached_attention", "cuda_quantised"} <= {kernel["rule"] for kernel in manifest["kernels"]}
    assert manifest["memory"]["workspace_bytes"] >= 0
    assert manifest["state"]


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_range_of_lengths_is_verified_and_installed(tmp_path: Path) -> None:
    model = encoder(tmp_path / "model.onnx", hidden=16)
    terms = DeployOptions(
        model=model, backend="tvm", processor="gpu", shapes={"seq": ((1, 40),)}, lengths=(7, 40), rounds=6,
        threads=1,
    )  # fmt: skip
    result = deploy(terms, Notes())
    assert result.contenders["tvm"].verification.passed
    assert [one.length for one in result.lengths] == [7, 40]
    manifest = json.loads((result.bundle / "manifest.json").read_text())
    assert manifest["target"]["kind"] == "cuda"
    assert manifest["signature"]["length"]["high"] == 40


def deployed(tmp_path: Path, **options: Any) -> tuple[Any, list[str], dict[str, Any]]:
    notes = Notes()
    model = convnet(tmp_path / "model.onnx")
    terms = DeployOptions(model=model, backend="tvm", threads=1, rounds=6, **options)
    result = deploy(terms, notes)
    manifest = json.loads((result.bundle / "manifest.json").read_text())
    return result, notes.texts, manifest


def test_auto_measures_both_and_takes_the_better(tmp_path: Path) -> None:
    result, notes, manifest = deployed(tmp_path)
    assert not [text for text in notes if "GPU is left out" in text]
    points = {point.name: point for point in result.power.points}
    assert set(points) == {FASTEST, GPU}
    # Threads one after the other are slower than the CPU's own program.
    assert points[GPU].value("latency") > points[FASTEST].value("latency") > 0
    assert result.power.taken is points[FASTEST]
    assert manifest["target"]["kind"] == "llvm"


def test_auto_tunes_the_gpu_and_measures_it_beside_the_cpu(tmp_path: Path) -> None:
    result, notes, manifest = deployed(tmp_path, trials=2, train=False)
    assert not [text for text in notes if "GPU is left out" in text]
    assert {point.name for point in result.power.points} == {FASTEST, GPU}
    assert manifest["target"]["kind"] == "llvm", "the emulated GPU is slower"
    assert result.tuning is not None and result.tuning.measured_now > 0
    with RecordStore(records_file()) as store:
        rules = {record.candidate.rule for record in store}
    assert rules and all(rule.startswith("cuda_") for rule in rules)


@pytest.mark.long
def test_trials_are_the_cpus_where_no_program_of_the_gpu_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Nvrtc, source: str, arch: str) -> Cubin:
        raise BuildError("nvrtc: out of registers")

    monkeypatch.setattr(Nvrtc, "compile", refuse)
    # Kernels that were compiled before would be found.
    monkeypatch.setattr("host.build.cuda.library.CUBIN_VERSION", "refused")
    result, notes, manifest = deployed(tmp_path, trials=2, train=False)
    assert [text for text in notes if "the GPU is left out" in text and "out of registers" in text]
    assert manifest["target"]["kind"] == "llvm"
    assert result.tuning is not None and result.tuning.measured_now > 0
    with RecordStore(records_file()) as store:
        rules = {record.candidate.rule for record in store}
    assert [rule for rule in rules if not rule.startswith("cuda_")]


def test_gpu_is_tuned_verified_and_installed(tmp_path: Path) -> None:
    result, _, manifest = deployed(tmp_path, processor="gpu", trials=6, train=False)
    assert manifest["target"]["kind"] == "cuda"
    assert result.contenders["tvm"].verification.passed
    assert result.measurement.conditions["launch"] == "CUDA graph"
    assert result.tuning is not None
    assert result.tuning.measured_now > 0
    assert all(seconds > 0 for _, seconds in result.tuning.curve)
    measured = [kernel for kernel in manifest["kernels"] if kernel["rule"].startswith("cuda_")]
    assert measured
    assert all(kernel["latency_us"] > 0 for kernel in measured)
