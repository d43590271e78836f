"""Which sessions of a deployment are opened before its model is compiled."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from host.deploy.comparison_settings import prestarted_sessions
from host.model import BOARD, DeviceProfile
from host.options import DeployOptions
from targets import declared_boards

_ENGINES = ("tvm", "onnxruntime", "openvino", "litert", "llama.cpp")


class Stub:
    """A device whose sessions open."""

    timing = BOARD

    def open_session(self, engine: str, threads: int, time_limit_s: float) -> Any:
        return SimpleNamespace(close=lambda: None)


def _opened(board: str, format_name: str = "onnx", **options: Any) -> list[str]:
    device, known = cast(Any, Stub()), declared_boards()[board]
    profile = DeviceProfile("board", known, known.hardware, 2)
    model = cast(Any, SimpleNamespace(format=format_name, module=object()))
    with prestarted_sessions(device, model, DeployOptions(Path("net"), **options), profile) as prestarted:
        return [one for one in _ENGINES if prestarted.take(device, one, 2) is not None]


def test_those_of_the_model_and_of_its_peers_are_opened() -> None:
    assert _opened("raspberry_pi_5") == ["tvm", "onnxruntime"]
    assert _opened("raspberry_pi_5", peers=("openvino", "litert")) == ["tvm", "openvino"]


def test_none_is_opened_where_a_gpu_is_compared_first() -> None:
    assert _opened("jetson_orin_nano", processor="auto") == []
    assert _opened("jetson_orin_nano", processor="cpu") == ["tvm", "onnxruntime"]
    assert _opened("raspberry_pi_5", processor="auto") == ["tvm", "onnxruntime"]


@pytest.mark.parametrize("given", [{"objective": "energy"}, {"trials": 8}])
def test_none_is_opened_where_variants_are_compared_first(given: dict[str, Any]) -> None:
    assert _opened("raspberry_pi_5", **given) == []


def test_none_is_opened_for_an_engine_of_texts() -> None:
    given: dict[str, Any] = {"peers": ("llama.cpp",), "peer_files": {"llama.cpp": Path("net.gguf")}}
    assert _opened("raspberry_pi_5", "gguf", **given) == ["tvm"]
