"""The native executor with a GPU: the same bundle, on the driver that runs kernels on this machine's CPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from host import bundle
from host.errors import EngineError
from host.transport.device import Device
from tests.emulation.cuda import emulated
from tests.emulation.cuda.test_bundles import gpu_bundle, masked
from tests.integration.native.conftest import NativeAgent
from tests.shared_cache import executor_for


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle for the emulated GPU."""
    folder = tmp_path_factory.mktemp("model")
    with pytest.MonkeyPatch.context() as patch:
        emulated.take_the_place_of_nvrtc(patch)
        return gpu_bundle(masked(folder / "model.onnx"), folder)


@pytest.fixture
def connected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    """A machine whose sessions are native executors, and whose driver lies in `tmp_path / "driver"`."""
    (tmp_path / "driver").mkdir()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "driver"))
    agent = NativeAgent(tmp_path / "agent", executor_for("x86_64"))
    try:
        with Device("native", agent.connect(), True, agent) as device:
            yield device
    finally:
        agent.stop()


def test_model_computes_on_the_gpu(connected: Device, model: Path, tmp_path: Path) -> None:
    emulated.emulated_driver(tmp_path / "driver")
    (case, *_) = bundle.golden_cases(model, bundle.load(model))
    with connected.open_session("tvm", threads=1) as session:
        session.load(model)
        for _ in range(2):
            for value, wanted in zip(session.run(case.inputs), case.outputs, strict=True):
                assert value.dtype == wanted.dtype
                np.testing.assert_allclose(value, wanted, rtol=1e-4, atol=1e-5)
        kernels = session.profile(case.inputs, runs=2)
        assert len(kernels) >= 3
        assert all(kernel.seconds > 0 for kernel in kernels.values())


def test_board_without_a_driver_says_so(connected: Device, model: Path) -> None:
    with (
        connected.open_session("tvm", threads=1) as session,
        pytest.raises(EngineError, match="no NVIDIA driver on this machine"),
    ):
        session.load(model)
