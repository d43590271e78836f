"""The native executor with a GPU: the same bundle, on the driver that runs kernels on this machine's CPU."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from host import bundle
from host.build import build_cuda_library
from host.errors import EngineError, MeasureError, SessionLost
from host.measure.kernels import KernelRunner
from host.transport.device import Device
from tests.emulation.cuda import emulated
from tests.emulation.cuda.test_bundles import gpu_bundle, masked
from tests.integration.native.conftest import NativeAgent
from tests.integration.native.process import Executor
from tests.little_memory import with_free_memory
from tests.shared_cache import executor_for
from tests.signing import reseal
from tests.tiny_bundle import write_tiny
from tests.unit.build.test_cuda import scaled, target


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle for the emulated GPU."""
    folder = tmp_path_factory.mktemp("model")
    with pytest.MonkeyPatch.context() as patch:
        emulated.take_the_place_of_nvrtc(patch)
        return gpu_bundle(masked(folder / "model.onnx"), folder)[0]


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


def test_kernel_is_timed_on_the_gpu(
    connected: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulated.emulated_driver(tmp_path / "driver")
    emulated.take_the_place_of_nvrtc(monkeypatch)
    library = tmp_path / "kernel.so"
    build_cuda_library({"double": scaled(2.0)}, library, target(machine="x86_64"))
    arguments = [((64,), "float32"), ((64,), "float32")]
    with connected.open_session("tvm", threads=1) as session, KernelRunner(session) as runner:
        measured = runner.measure(library, "double", arguments, min_repeat_ms=1.0, device="cuda")
        assert len(measured.times_s) == 5
        assert all(seconds > 0 for seconds in measured.times_s)
        # On the CPU's memory the driver's addresses are no addresses.
        with pytest.raises((MeasureError, SessionLost)):
            runner.measure(library, "double", arguments, min_repeat_ms=1.0, device="cpu")


def test_board_without_a_driver_says_so(connected: Device, model: Path) -> None:
    with (
        connected.open_session("tvm", threads=1) as session,
        pytest.raises(EngineError, match="no NVIDIA driver on this machine"),
    ):
        session.load(model)


def test_a_language_model_is_judged_by_the_memory_that_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulated.emulated_driver(tmp_path)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    made = write_tiny(tmp_path)
    state = [{"name": "seen", "shape": [15 << 15, 1 << 15], "dtype": "float32"}]
    target = json.loads((made / "manifest.json").read_text())["target"]
    reseal(made, state=state, target={**target, "kind": "cuda"})
    with_free_memory(tmp_path, 3 << 20, monkeypatch)
    said = []
    for discrete in (False, True):
        if discrete:
            monkeypatch.setenv("EMULATED_DISCRETE", "1")
        with Executor([str(executor_for("x86_64"))], tmp_path / "session") as running:
            said.append(running.ask("load", path=str(made), trust="unsigned")[0]["error"]["message"])
    shared, own = said
    assert "its weights and its state take 61440.0 MiB, this machine has 3072.0 MiB free" in shared
    # What comes next: no tensor is as large.
    assert "a tensor of shape [491520,32768]" in own
