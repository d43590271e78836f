"""Engines of the board's system, by stand-ins: providers that do not start, and which engines are kept."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from device_agent.errors import AgentError
from device_agent.execute.engines import onnxruntime_engine, tensorrt_engine
from device_agent.execute.engines.tensorrt_engine import TensorrtEngine

_CUDA, _CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


def _onnxruntime(starting: Sequence[str]) -> Any:
    """ONNX Runtime with CUDA built in, of whose providers only these start."""

    class Session:
        def __init__(self, path: str, options: Any, providers: Sequence[str]) -> None:
            self._providers = [one for one in providers if one in starting]

        def get_providers(self) -> list[str]:
            return self._providers

        def get_inputs(self) -> list[Any]:
            return [SimpleNamespace(name="x", shape=[1], type="tensor(float)")]

        get_outputs = get_inputs

    return SimpleNamespace(
        SessionOptions=SimpleNamespace,
        InferenceSession=Session,
        get_available_providers=lambda: [_CUDA, _CPU],
    )


@pytest.mark.parametrize("starting", [(_CUDA, _CPU), (_CPU,)])
def test_a_provider_that_does_not_start_is_an_error(
    starting: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnxruntime_engine, "import_quietly", lambda name: _onnxruntime(starting))
    engine = onnxruntime_engine.create("cuda")
    if _CUDA in starting:
        assert engine.load("model.onnx", 1)["inputs"][0]["name"] == "x"
        return
    with pytest.raises(
        AgentError, match=f"{_CUDA} does not start .* would run on {_CPU} instead; inst"
    ) as found:
        engine.load("model.onnx", 1)
    assert "\n" not in str(found.value)


def test_what_is_too_large_is_neither_kept_nor_read(tmp_path: Path) -> None:
    place = tmp_path / "plans" / "a.plan"
    tensorrt_engine._write(str(place), bytes(101), 100)
    assert not place.exists()
    tensorrt_engine._write(str(place), bytes(100), 100)
    assert tensorrt_engine._read(str(place), 100) == bytes(100)
    # A part of a plan would be of no use.
    assert tensorrt_engine._read(str(place), 99) == b""


def test_engines_that_were_used_last_are_kept_as_far_as_they_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensorrt_engine, "_MOST_PLANS", 3)
    monkeypatch.setattr(tensorrt_engine, "_MOST_PLANS_BYTES", 100)

    def kept(*sizes: int) -> list[int]:
        """Of files of these sizes, from the one that was used last, which are left."""
        for path in tmp_path.iterdir():
            path.unlink()
        for place, size in enumerate(sizes):
            (tmp_path / str(place)).write_bytes(bytes(size))
            os.utime(tmp_path / str(place), (1000 - place, 1000 - place))
        tensorrt_engine._keep_newest(str(tmp_path))
        return sorted(int(path.name) for path in tmp_path.iterdir())

    assert kept(10, 10, 10, 10) == [0, 1, 2]
    assert kept(60, 60, 10) == [0]
    assert kept(60, 40) == [0, 1]


def test_an_engine_is_kept_by_model_type_version_gpu_and_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    def name(model: bytes = b"m", way: str = "", version: str = "10.3", gpu: str = "Orin") -> str:
        memory: Any = SimpleNamespace(gpu=gpu)
        return TensorrtEngine(SimpleNamespace(__version__=version), memory, way, "timings")._name_of(model)

    names = {name(), name(b"n"), name(way="fp16"), name(version="10.4"), name(gpu="Thor")}
    monkeypatch.setattr(tensorrt_engine, "_SETTINGS", tensorrt_engine._SETTINGS + 1)
    names.add(name())
    assert len(names) == 6
