"""CPU or GPU: what can be asked of which board, and which of two that both run is taken."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from host.build import cuda_major
from host.deployment.clock import StageClock
from host.deployment.deploy import compile_bundle
from host.deployment.gpu import GPU, better_of
from host.deployment.options import CompileOptions, Silence
from host.deployment.processor import gpu_profile, why_no_gpu
from host.deployment.variants import FASTEST, Variant
from host.errors import EngineError, UserError
from host.measure.paired import PairedResult
from host.model import DeviceProfile, GoldenCase, ImportedModel, Signature, TensorSpec
from targets import board_for, declared
from tests.integration.small_models import convnet


def profile(target: str, **software: str) -> DeviceProfile:
    board = board_for(declared()[target])
    assert board is not None
    return DeviceProfile(target, board, board.hardware, 1, software)


@pytest.mark.parametrize(
    ("target", "software", "cuda", "major"),
    [
        ("jetson_orin_nano", {}, "", 12),
        ("jetson_orin_nano", {}, "11", 11),
        ("jetson_orin_nano", {"cuda": "11.4.19", "l4t": "35.4.1"}, "", 11),
        ("jetson_agx_orin", {"cuda": "13.0"}, "", 13),
        ("jetson_xavier_nx", {}, "", 11),
        ("jetson_agx_thor", {}, "", 13),
    ],
)
def test_programs_for_the_cuda_of_the_board(
    target: str, software: dict[str, str], cuda: str, major: int
) -> None:
    on_gpu = gpu_profile(profile(target, **software), cuda)
    assert cuda_major(on_gpu.software) == major
    assert on_gpu.hardware.gpu == on_gpu.board.gpu
    assert on_gpu.board.tvm_target["kind"] == "cuda"


@pytest.mark.parametrize(
    ("target", "software", "cuda", "reason"),
    [
        ("jetson_nano", {}, "", "ends with JetPack 4"),
        ("raspberry_pi_5", {}, "", "no programs are made for a GPU of the Raspberry Pi 5"),
        ("jetson_xavier_nx", {"cuda": "13.0"}, "", "CUDA 13 does not know"),
        ("jetson_orin_nano", {"python": "3.10"}, "", "the agent finds no CUDA"),
        ("jetson_orin_nano", {}, "10.2", "CUDA 11, 12, 13, not for 10.2"),
    ],
)
def test_reasons_against_the_gpu(target: str, software: dict[str, str], cuda: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        gpu_profile(profile(target, **software), cuda)
    assert reason in why_no_gpu(profile(target, **software), cuda)


def test_a_bundle_for_a_jetson_holds_cubins_and_no_source(tmp_path: Path) -> None:
    options = CompileOptions(model=convnet(tmp_path / "model.onnx"), processor="gpu", backend="tvm")
    compile_bundle(options, "jetson_orin_nano", tmp_path / "bundle")
    manifest = json.loads((tmp_path / "bundle" / "manifest.json").read_text())
    assert manifest["target"]["kind"] == "cuda"
    assert manifest["versions"]["cuda"] == "12"
    content = b"".join(path.read_bytes() for path in (tmp_path / "bundle").iterdir() if path.is_file())
    # An ELF file of machine 190 (CUDA) for each kernel; neither CUDA C++ nor PTX in any form.
    assert content.count(b"\x7fELF\x02\x01\x01") > len(manifest["kernels"])
    for text in (b"__global__", b"__launch_bounds__", b".visible .entry", b".target sm_", b".address_size"):
        assert text not in content, text


class Scripted:
    """A session that answers with given outputs, or does not load."""

    def __init__(self, outputs: Sequence[np.ndarray], refusal: str = "") -> None:
        self.outputs, self.refusal = list(outputs), refusal

    def load(self, path: Path) -> None:
        if self.refusal:
            raise EngineError(self.refusal)

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        return self.outputs

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class Board:
    """A device with a session for each variant, in the order in which they are opened."""

    def __init__(self, *sessions: Scripted) -> None:
        self.sessions = list(sessions)

    def open_session(self, *_: Any, **__: Any) -> Scripted:
        return self.sessions.pop(0)


class Notes(Silence):
    """Progress that keeps what it is told."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)


GOOD = np.ones(4, np.float32)


def decide(
    monkeypatch: pytest.MonkeyPatch, on_gpu: Scripted, seconds: tuple[float, float]
) -> tuple[str, list[str]]:
    """What is taken where the CPU needs `seconds[0]` and the GPU `seconds[1]`."""

    def compare(sessions: dict[str, Any], inputs: Any, rounds: int, energy_rounds: int) -> PairedResult:
        assert list(sessions) == ["cpu", "gpu"]
        draw = np.random.default_rng(0).uniform(0.98, 1.02, (2, rounds))
        times = {n: tuple(s * d) for n, s, d in zip(sessions, seconds, draw, strict=True)}
        return PairedResult(measurements={}, rounds_s=times)

    monkeypatch.setattr("host.measure.paired.compare", compare)
    spec = TensorSpec("x", (4,), "float32")
    model = ImportedModel(
        name="m",
        path=Path("m.onnx"),
        format="onnx",
        content_hash="",
        signature=Signature((spec,), (spec,)),
        module=None,
        golden=(GoldenCase((GOOD,), (GOOD,)),),
    )
    variants = (Variant(FASTEST, "tvm", Path("a"), 1), Variant(GPU, "tvm", Path("b"), 1))
    notes = Notes()
    board: Any = Board(on_gpu, Scripted([GOOD]))
    taken = better_of(board, model, variants, [GOOD], "latency", StageClock(notes))
    return taken.name, notes.texts


def test_the_faster_one_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    name, notes = decide(monkeypatch, Scripted([GOOD]), (2.0, 1.0))
    assert name == GPU
    assert "latency, CPU over GPU: 2.0" in notes[0]
    assert "the GPU is taken" in notes[0]
    assert decide(monkeypatch, Scripted([GOOD]), (1.0, 2.0))[0] == FASTEST


def test_a_gpu_that_is_wrong_or_fails_is_out(monkeypatch: pytest.MonkeyPatch) -> None:
    name, notes = decide(monkeypatch, Scripted([GOOD * 2]), (2.0, 1.0))
    assert name == FASTEST
    assert "the GPU is left out: output 'x' differs" in notes[0]
    name, notes = decide(monkeypatch, Scripted([], "the driver finds no CUDA GPU"), (2.0, 1.0))
    assert (name, notes) == (FASTEST, ["the GPU is left out: the driver finds no CUDA GPU"])


def test_unknown_processor_is_refused() -> None:
    with pytest.raises(UserError, match="no processor 'npu'"):
        CompileOptions(model=Path("m"), processor="npu").check()
    with pytest.raises(UserError, match="--processor gpu does not go with a range of lengths"):
        CompileOptions(model=Path("m"), processor="gpu", shapes={"n": ((1, 8),)}).check()
