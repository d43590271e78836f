"""What both processors use lies in memory that they share, where the driver says that there is one memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.emulation.cuda import emulated
from tests.emulation.cuda.test_graphs import check, drawn
from tests.emulation.cuda.test_processors import detector, mixed_bundle

# Runs a model with some inputs in turn; prints the bytes that the driver copied in each run, and, on request,
# hands tensors to the other processor without a wait.
_RUN = """
import ctypes, json, sys
import numpy
from device_agent import runtime
from device_agent.execute import shared_memory
if sys.argv[4] == "without a wait":
    shared_memory.cross = lambda source, target: None
model = runtime.load(sys.argv[1], trust="unsigned")
copied = ctypes.c_longlong.in_dll(ctypes.CDLL("libcuda.so.1"), "emulated_copied")
bytes_of, found = [copied.value], {}
with numpy.load(sys.argv[2]) as given:
    for run in range(len(given.files)):
        for i, value in enumerate(model.run([given[str(run)]]).values()):
            found["%d_%d" % (run, i)] = value
        bytes_of.append(copied.value)
numpy.savez(sys.argv[3], **found)
print(json.dumps([after - before for before, after in zip(bytes_of, bytes_of[1:])]))
"""
# The detector's scores to the CPU and the best of them back, its input, and an output of 4x48.
_SCORES, _BEST, _INPUT, _CLASSES = (4 * count for count in (4 * 64, 4 * 5, 4 * 16, 4 * 48))


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment of processes on the emulated machine."""
    return emulated.machine_with_gpu(tmp_path_factory.mktemp("machine"))


def _run(
    bundle: Path, given: list[list[np.ndarray]], folder: Path, environment: dict[str, str], how: str = ""
) -> tuple[list[list[np.ndarray]], list[int]]:
    """Outputs of each run, and the bytes that were copied in it."""
    np.savez(folder / "inputs.npz", **{str(run): one[0] for run, one in enumerate(given)})
    command = [sys.executable, "-c", _RUN, bundle, folder / "inputs.npz", folder / "found.npz", how]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    with np.load(folder / "found.npz") as found:
        outputs = [[found[f"{run}_{i}"] for i in range(2)] for run in range(len(given))]
    return outputs, json.loads(done.stdout)


def test_nothing_is_copied_where_the_memory_is_shared(
    tmp_path: Path, machine: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    emulated.take_the_place_of_nvrtc(monkeypatch)
    model = detector(tmp_path / "model.onnx")
    bundle, _ = mixed_bundle(model, tmp_path)
    given = drawn(model, 4)
    found, copied = _run(bundle, given, tmp_path, machine)
    check(model, given, found)
    assert copied == [0] * 4
    # The same bundle on a GPU with memory of its own.
    discrete = {**machine, "EMULATED_DISCRETE": "1"}
    found, copied = _run(bundle, given, tmp_path, discrete)
    check(model, given, found)
    assert copied == [_INPUT + _SCORES + _BEST + _CLASSES] * 4
    # Without a wait, the CPU sorts what was there before the GPU wrote.
    found, _ = _run(bundle, given, tmp_path, machine, "without a wait")
    with pytest.raises(AssertionError):
        check(model, given, found)


@pytest.mark.parametrize("discrete", [False, pytest.param(True, marks=pytest.mark.long)])
def test_the_native_executor_shares_memory_too(
    discrete: bool, tmp_path: Path, machine: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    emulated.take_the_place_of_nvrtc(monkeypatch)
    model = detector(tmp_path / "model.onnx")
    bundle, _ = mixed_bundle(model, tmp_path)
    given = drawn(model, 4)
    counted = tmp_path / "copied"
    monkeypatch.setenv("EMULATED_COPIED", str(counted))
    if discrete:
        monkeypatch.setenv("EMULATED_DISCRETE", "1")
    with emulated.native_session(bundle, tmp_path, machine, monkeypatch) as running:
        check(model, given[:2], [running.ask("run", one)[1] for one in given[:2]])
        before = counted.read_text() if counted.exists() else ""
        check(model, given[2:], [running.ask("run", one)[1] for one in given[2:]])
        after = counted.read_text() if counted.exists() else ""
    sizes = [int(line) for line in after[len(before) :].split()]
    assert sizes == ([_INPUT, _SCORES, _BEST, _CLASSES] * 2 if discrete else [])
