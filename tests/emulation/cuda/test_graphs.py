"""Models on a GPU as CUDA graphs, on the driver that runs kernels on this machine's CPU."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper

import device_agent
from device_agent.execute.cuda_graph import _WITHOUT_DATA
from device_agent.execute.kernel_times import BUILTIN
from tests.emulation.cuda import emulated
from tests.emulation.cuda.test_bundles import gpu_bundle, layers, masked
from tests.integration.small_models import floats, save

# Runs a model with some sets of inputs in turn; prints the counts of the driver behind each of them.
_RUN = """
import ctypes, json, sys
import numpy
from device_agent import runtime
model = runtime.load(sys.argv[1], trust="unsigned")
driver = ctypes.CDLL("libcuda.so.1")
count = lambda name: ctypes.c_int.in_dll(driver, name).value
found, counts = {}, []
with numpy.load(sys.argv[2]) as given:
    for run in range(int(sys.argv[3])):
        inputs = [given["%d_%d" % (run, i)] for i in range(len(model.signature.inputs))]
        for i, value in enumerate(model.run(inputs).values()):
            found["%d_%d" % (run, i)] = value
        counts.append([count("emulated_launches"), count("emulated_graphs")])
numpy.savez(sys.argv[4], **found)
print(json.dumps([counts, model.machine.launch]))
"""


def long_product(path: Path, depth: int, columns: int) -> Path:
    """A product whose blocks share the depth in halves: its parts take scratch memory."""
    weights = np.random.default_rng(0).normal(size=(depth, columns)) / depth**0.5
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    outputs = [floats("y", 16, columns)]
    return save(path, nodes, [floats("x", 16, depth)], outputs, {"w": weights.astype("float32")})


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment of processes on the emulated machine."""
    return emulated.machine_with_gpu(tmp_path_factory.mktemp("machine"))


def drawn(model: Path, runs: int) -> list[list[np.ndarray]]:
    """Inputs of some runs, all different."""
    draw = np.random.default_rng(0)
    session = onnxruntime.InferenceSession(model)
    shapes = [one.shape for one in session.get_inputs()]
    return [[draw.normal(size=shape).astype("float32") for shape in shapes] for _ in range(runs)]


def check(
    model: Path, given: list[list[np.ndarray]], found: list[list[np.ndarray]], tolerance: float = 1e-5
) -> None:
    session = onnxruntime.InferenceSession(model)
    names = [one.name for one in session.get_inputs()]
    for inputs, outputs in zip(given, found, strict=True):
        wanted = session.run(None, dict(zip(names, inputs, strict=True)))
        for one, other in zip(outputs, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=10 * tolerance, atol=tolerance)


def run_in_python(
    bundle: Path, given: list[list[np.ndarray]], folder: Path, environment: dict[str, str]
) -> tuple[list[list[np.ndarray]], list[list[int]], str]:
    """Outputs of each run, launches of kernels and of graphs until behind it, how the last was started."""
    outputs, (counts, launch) = run_script(_RUN, bundle, given, folder, environment)
    return outputs, counts, launch


def run_script(
    script: str,
    bundle: Path,
    given: list[list[np.ndarray]],
    folder: Path,
    environment: dict[str, str],
    *words: str,
) -> tuple[list[list[np.ndarray]], Any]:
    """Outputs of each run of a bundle, and what the script prints as JSON.

    Args:
        script: gets the bundle, a file with the inputs, the number of runs, a file for the outputs, and
            `words`. The names in both files are "RUN_PLACE".
        bundle: that it loads.
        given: inputs of each run.
        folder: for both files.
        environment: variables of the process beside those of this one.
        words: see `script`.
    """
    inputs = {f"{run}_{i}": value for run, one in enumerate(given) for i, value in enumerate(one)}
    np.savez(folder / "inputs.npz", **inputs)
    files = folder / "inputs.npz", str(len(given)), folder / "found.npz"
    done = subprocess.run(
        [sys.executable, "-c", script, bundle, *files, *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    with np.load(folder / "found.npz") as found:
        outputs = [
            [found[key] for key in found.files if key.startswith(f"{run}_")] for run in range(len(given))
        ]
    return outputs, json.loads(done.stdout)


@pytest.mark.parametrize("make", [masked, layers])
def test_each_run_starts_one_graph(
    make: Callable[[Path], Path],
    tmp_path: Path,
    machine: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    emulated.take_the_place_of_nvrtc(monkeypatch)
    model = make(tmp_path / "model.onnx")
    bundle, rules = gpu_bundle(model, tmp_path)
    given = drawn(model, 4)
    found, counts, launch = run_in_python(bundle, given, tmp_path, machine)
    check(model, given, found)
    kernels = sum(rules.values())
    assert [graphs for _, graphs in counts] == [2, 3, 4, 5], "it is recorded by loading"
    assert counts[0][0] >= kernels >= 3
    assert {launches for launches, _ in counts} == {counts[0][0]}, "a kernel is started outside of the graph"
    assert launch == "CUDA graph"


def test_the_native_executor_starts_graphs_too(
    tmp_path: Path, machine: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    emulated.take_the_place_of_nvrtc(monkeypatch)
    model = layers(tmp_path / "model.onnx")
    bundle, _ = gpu_bundle(model, tmp_path)
    given = drawn(model, 4)
    with emulated.native_session(bundle, tmp_path, machine, monkeypatch) as running:
        check(model, given, [running.ask("run", one)[1] for one in given])
        assert emulated.native_launch(running) == "CUDA graph"
        # Profiles start kernels one by one, and leave the graph as it was.
        assert len(running.ask("profile", runs=2)[0]["kernels"]) >= 3
        check(model, given[:2], [running.ask("run", one)[1] for one in given[:2]])


_IN_TURN = """
import sys
import numpy
from device_agent import runtime
small, large = (runtime.load(path, trust="unsigned") for path in sys.argv[1:3])
for model, runs in ((small, 3), (large, 3), (small, 1)):
    (info,) = model.signature.inputs
    for _ in range(runs):
        (found,) = model.run([numpy.full(info.shape, 0.5, info.dtype)]).values()
    assert numpy.isfinite(found).all()
    print(model.machine.launch)
"""


def test_scratch_memory_stays_as_long_as_the_graph(
    tmp_path: Path, machine: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """TVM's pool frees a block where another model needs a larger one; the driver checks addresses."""
    emulated.take_the_place_of_nvrtc(monkeypatch)
    bundles = []
    for name, depth, columns in (("small", 4096, 32), ("large", 8192, 64)):
        (tmp_path / name).mkdir()
        model = long_product(tmp_path / f"{name}.onnx", depth, columns)
        bundles.append(gpu_bundle(model, tmp_path / name, "fp16")[0])
        manifest = json.loads((bundles[-1] / "manifest.json").read_text())
        assert manifest["memory"]["workspace_bytes"] > 0
    done = subprocess.run(
        [sys.executable, "-c", _IN_TURN, *bundles],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **machine},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "CUDA graph\n" * 3
    given = drawn(model, 3)
    with emulated.native_session(bundles[-1], tmp_path, machine, monkeypatch) as running:
        check(model, given, [running.ask("run", one)[1] for one in given], 5e-3)


_REFUSED = """
import json, sys
from device_agent.execute import ffi
from device_agent.execute.cuda_graph import GraphedCall
device = ffi.load_cuda()
tensor = ffi.empty((4,), "float32", device)
calls = []

def plain():
    calls.append("plain")
    return tensor

def instrumented(instrument):
    def call():
        %s
        return tensor
    return call

call = GraphedCall(device, plain, instrumented)
for _ in range(3):
    assert call() is tensor
# Nothing is left of the recording: the thread copies as before.
ffi.copy_from_buffer(tensor, bytes(16))
assert bytes(ffi.to_bytes(tensor, 16)) == bytes(16)
print(json.dumps([calls, call.launch]))
"""


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("ffi.to_bytes(tensor, 16)", "CUDA"),
        ("instrument(None, 'vm.builtin.read_if_cond', True, None)", "read_if_cond runs on the processor"),
        ("instrument(None, 'tvm.contrib.sort.argsort', True, None, tensor)", "argsort runs on the processor"),
        ("raise ValueError('no such thing')", "no such thing"),
    ],
)
def test_what_a_graph_cannot_repeat_goes_on_kernel_by_kernel(
    body: str, reason: str, machine: dict[str, str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _REFUSED % body],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **machine},
    )
    assert done.returncode == 0, done.stderr
    calls, launch = json.loads(done.stdout)
    assert calls == ["plain"] * 3
    assert launch.startswith("kernel by kernel: ") and reason in launch


def test_both_executors_take_the_same_calls_of_the_machine_for_harmless() -> None:
    source = Path(device_agent.__file__).parent / "native" / "cuda" / "graph.cc"
    (listed,) = re.findall(r"known\{(.*?)\};", source.read_text(), re.DOTALL)
    assert {BUILTIN + name for name in re.findall(r'"(\w+)"', listed)} == _WITHOUT_DATA


_FILL = """
extern "C" __global__ void fill_kernel(int* __restrict__ y, int n) {
  y[((int)threadIdx.x)] = n;
}
"""
_CAPTURED = """
import ctypes, sys
driver = ctypes.CDLL("libcuda.so.1")
module, function, stream = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
graph, made, context = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
address, here = ctypes.c_uint64(), (ctypes.c_int * 4)()
# Four bytes of an integer, and behind them what begins like an address of the GPU.
number = ctypes.c_uint64(0x0100DEAD << 32 | 33)
one = [ctypes.c_uint(1)] * 3
block = [ctypes.c_uint(4), *one[1:]]

def start(place, stream):
    arguments = (ctypes.c_void_p * 2)(ctypes.addressof(place), ctypes.addressof(number))
    return driver.cuLaunchKernel(function, *one, *block, ctypes.c_uint(0), stream, arguments, None)

assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == driver.cuCtxSetCurrent(context) == 0
assert driver.cuModuleLoadData(ctypes.byref(module), open(sys.argv[1], "rb").read()) == 0
assert driver.cuModuleGetFunction(ctypes.byref(function), module, b"fill_kernel") == 0
assert driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(16)) == 0
driver.cuStreamCreate(ctypes.byref(stream), 0)
assert driver.cuStreamBeginCapture_v2(stream, 2) == start(address, stream) == 0
assert driver.cuStreamEndCapture(stream, ctypes.byref(graph)) == 0
assert driver.cuGraphInstantiateWithFlags(ctypes.byref(made), graph, ctypes.c_ulonglong(0)) == 0
assert driver.cuGraphLaunch(made, None) == 0
assert driver.cuMemcpyDtoHAsync_v2(here, address, ctypes.c_size_t(16), None) == 0
assert list(here) == [33] * 4
# The memory of the processor is not the GPU's, nor is what has been freed.
ILLEGAL_ADDRESS = 700
assert start(ctypes.c_uint64(ctypes.addressof(here)), None) == ILLEGAL_ADDRESS
assert driver.cuMemFree_v2(address) == 0
assert start(address, None) == driver.cuGraphLaunch(made, None) == ILLEGAL_ADDRESS
"""


def test_the_emulated_driver_takes_no_more_of_an_argument_than_it_has(
    tmp_path: Path, machine: dict[str, str]
) -> None:
    """A length is 4 bytes; with those behind it, it may look like an address that was never allocated."""
    (tmp_path / "kernel").write_bytes(emulated.emulated_cubin(_FILL))
    done = subprocess.run(
        [sys.executable, "-c", _CAPTURED, tmp_path / "kernel"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **machine},
    )
    assert done.returncode == 0, done.stderr
