"""A Jetson as far as there is one without a GPU: executors and libraries of aarch64, emulated."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from host import bundle
from host.deploy.deployment import compile_bundle
from host.options import CompileOptions
from host.payload import payload_for
from targets import board_for, declared
from tests.emulation.cuda import emulated
from tests.emulation.qemu import emulator
from tests.integration.native.process import Executor
from tests.integration.small_models import convnet
from tests.shared_cache import executor_for, root_of

RUN_WITHOUT_NUMPY = """
import array, sys
from device_agent import runtime
from device_agent.execute import ffi
model = runtime.load(sys.argv[1], trust="unsigned")
(info,) = model.signature.inputs
with open(sys.argv[2] + "/input", "rb") as file:
    given = memoryview(file.read()).cast("f", info.shape)
(result,) = model.run([given]).values()
size = 4
for dimension in result.shape:
    size *= int(dimension)
with open(sys.argv[2] + "/output", "wb") as file:
    file.write(ffi.to_bytes(result, size))
"""

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize(("cuda", "dtype"), [("11.4", "fp32"), ("12.6", "fp16")])
def test_bundle_for_an_orin_computes(
    cuda: str, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulated.take_the_place_of_nvrtc(monkeypatch, "aarch64")
    options = CompileOptions(
        model=convnet(tmp_path / "model.onnx"), processor="gpu", backend="tvm", cuda=cuda, dtype=dtype
    )
    manifest = compile_bundle(options, "jetson_orin_nano", tmp_path / "bundle")
    (tmp_path / "driver").mkdir()
    emulated.emulated_driver(tmp_path / "driver", "aarch64")
    program = [emulator("aarch64"), "-cpu", "cortex-a76", "-E", f"LD_LIBRARY_PATH={tmp_path / 'driver'}"]
    program += ["-L", str(root_of("aarch64")), str(executor_for("aarch64"))]
    with Executor(program, tmp_path / "session", 120.0) as running:
        reply, _ = running.ask("load", path=str(tmp_path / "bundle"))
        assert reply["ok"], reply
        for case in bundle.golden_cases(tmp_path / "bundle", manifest):
            reply, (found,) = running.ask("run", case.inputs)
            assert reply["ok"], reply
            error = np.abs(found - case.outputs[0]).max() / np.abs(case.outputs[0]).max()
            assert error < (1e-4 if dtype == "fp32" else 1e-2)


def test_python_payload_computes_with_the_wheels_own_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What JetPack 6 gets: TVM's CUDA library out of the wheel, and ours over the driver."""
    emulated.take_the_place_of_nvrtc(monkeypatch, "aarch64")
    options = CompileOptions(model=convnet(tmp_path / "model.onnx"), processor="gpu", backend="tvm")
    compile_bundle(options, "jetson_orin_nano", tmp_path / "bundle")
    emulated.emulated_driver(tmp_path, "aarch64")
    (interpreter,) = (root_of("aarch64") / "usr" / "bin").glob("python3.[0-9]*[0-9]")
    version = interpreter.name.removeprefix("python")
    machine = declared()["jetson_orin_nano"]
    machine = replace(machine, software={"python": f"{version}.0", "glibc": "2.36", "cuda": "12.6"})
    board = board_for(machine)
    assert board is not None
    payload = payload_for(machine, board, "tvm")
    assert payload.kind == "python"
    assert payload.size_bytes <= 15_000_000
    paths = f"{payload.folder}:{Path(__file__).resolve().parents[3]}"
    command = [emulator("aarch64"), "-cpu", "cortex-a76", "-L", str(root_of("aarch64"))]
    command += ["-E", f"LD_LIBRARY_PATH={tmp_path}", "-E", f"PYTHONPATH={paths}", str(interpreter)]
    command += ["-c", RUN_WITHOUT_NUMPY, str(tmp_path / "bundle"), str(tmp_path)]
    golden = np.load(tmp_path / "bundle" / "golden.npz")
    golden["case0_input0"].tofile(tmp_path / "input")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = np.fromfile(tmp_path / "output", np.float32).reshape(golden["case0_output0"].shape)
    np.testing.assert_allclose(found, golden["case0_output0"], rtol=1e-4, atol=1e-4)
