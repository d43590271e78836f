"""What both processors use lies in memory that they share, where the driver says that there is one memory.

Weights lie in one block of the GPU's own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from device_agent.wire.frames import tensor_bytes
from tests.emulation.cuda import emulated
from tests.emulation.cuda.test_bundles import gpu_bundle, layers
from tests.emulation.cuda.test_graphs import check, drawn, run_in_python, run_script
from tests.emulation.cuda.test_processors import detector, mixed_bundle
from tests.integration.small_models import floats, save

# Runs a model with some inputs in turn; prints the bytes that the driver copied in each run, and, on request,
# hands tensors to the other processor without a wait.
_RUN = """
import ctypes, json, sys
import numpy
from device_agent import runtime
from device_agent.execute import shared_memory
if sys.argv[5:] == ["without a wait"]:
    shared_memory.cross = lambda source, target: None
model = runtime.load(sys.argv[1], trust="unsigned")
copied = ctypes.c_longlong.in_dll(ctypes.CDLL("libcuda.so.1"), "emulated_copied")
bytes_of, found = [copied.value], {}
with numpy.load(sys.argv[2]) as given:
    for run in range(int(sys.argv[3])):
        for i, value in enumerate(model.run([given["%d_0" % run]]).values()):
            found["%d_%d" % (run, i)] = value
        bytes_of.append(copied.value)
numpy.savez(sys.argv[4], **found)
print(json.dumps([after - before for before, after in zip(bytes_of, bytes_of[1:])]))
"""
# Prints the bytes of the tensors for both processors that one run takes.
_TAKEN = """
import sys
import numpy
from device_agent import runtime
from device_agent.execute import shared_memory
from device_agent.wire.frames import tensor_bytes
taken = []
def counted(make):
    def made(*arguments):
        tensor = make(*arguments)
        taken.append(tensor_bytes(tuple(tensor.shape), str(tensor.dtype)))
        return tensor
    return made
shared_memory.tensor, shared_memory.beside = counted(shared_memory.tensor), counted(shared_memory.beside)
model = runtime.load(sys.argv[1], trust="unsigned")
taken.clear()
model.run([numpy.zeros((4, 16), "float32")])
print(sum(taken))
"""
# The detector's scores to the CPU and the best of them back, its input, and an output of 4x48.
_SCORES, _BEST, _INPUT, _CLASSES = (4 * count for count in (4 * 64, 4 * 5, 4 * 16, 4 * 48))


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment of processes on the emulated machine."""
    return emulated.machine_with_gpu(tmp_path_factory.mktemp("machine"))


def test_nothing_is_copied_where_the_memory_is_shared(
    tmp_path: Path, machine: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    emulated.take_the_place_of_nvrtc(monkeypatch)
    model = detector(tmp_path / "model.onnx")
    bundle, _ = mixed_bundle(model, tmp_path)
    given = drawn(model, 4)
    found, copied = run_script(_RUN, bundle, given, tmp_path, machine)
    check(model, given, found)
    assert copied == [0] * 4
    # The same bundle on a GPU with memory of its own.
    discrete = {**machine, "EMULATED_DISCRETE": "1"}
    found, copied = run_script(_RUN, bundle, given, tmp_path, discrete)
    check(model, given, found)
    assert copied == [_INPUT + _SCORES + _BEST + _CLASSES] * 4
    # What the bundle states, but the features in planned memory, the input, and an output of the CPU.
    without_graphs = {**os.environ, **discrete, "EMULATED_NO_GRAPHS": "1"}
    command = [sys.executable, "-c", _TAKEN, bundle]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=without_graphs)
    assert done.returncode == 0, done.stderr
    stated = json.loads((bundle / "manifest.json").read_text())["memory"]["activations_bytes"]
    assert int(done.stdout) == stated - 4 * 32 * 4 - _INPUT - 4 * 5 * 8
    # Without a wait, the CPU sorts what was there before the GPU wrote.
    found, _ = run_script(_RUN, bundle, given, tmp_path, machine, "without a wait")
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


def _two_sums(path: Path) -> Path:
    """The CPU makes two tensors of one size in turn, and the GPU is behind with the first one meanwhile."""
    draw = np.random.default_rng(0)
    weights = {"columns": np.array(1, dtype="int64"), "rows": np.array(0, dtype="int64")}
    weights |= {name: draw.normal(size=(33, 64)).astype("float32") for name in ("w", "v")}
    nodes = [
        helper.make_node("CumSum", ["x", "columns"], ["a"]),
        helper.make_node("MatMul", ["a", "w"], ["b"]),
        helper.make_node("CumSum", ["x", "rows"], ["c"]),
        helper.make_node("MatMul", ["c", "v"], ["d"]),
        helper.make_node("Add", ["b", "d"], ["y"]),
    ]
    return save(path, nodes, [floats("x", 4, 33)], [floats("y", 4, 64)], weights)


def test_memory_that_the_gpu_still_reads_is_not_used_again(
    tmp_path: Path, machine: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    emulated.take_the_place_of_nvrtc(monkeypatch)
    model = _two_sums(tmp_path / "model.onnx")
    bundle, tasks = mixed_bundle(model, tmp_path)
    assert sum(task.processor == "cpu" for task in tasks.values()) == 2
    given = drawn(model, 3)
    # Without graphs, nothing but the tensors of a run keeps their memory.
    monkeypatch.setenv("EMULATED_NO_GRAPHS", "1")
    found, _, launch = run_in_python(bundle, given, tmp_path, machine)
    assert launch.startswith("kernel by kernel: CUDA")
    check(model, given, found)
    with emulated.native_session(bundle, tmp_path, machine, monkeypatch) as running:
        check(model, given, [running.ask("run", one)[1] for one in given])


# Tensors of many lengths in turn, as of a range of lengths; prints how many blocks the driver has at the end,
# and the bytes of these.
_LENGTHS = """
import ctypes, json
from device_agent.execute import shared_memory
class Counted(shared_memory.CudaRuntime):
    blocks = {}
    def call(self, name, *arguments):
        super().call(name, *arguments)
        if name == "cudaHostAlloc":
            self.blocks[arguments[0]._obj.value] = arguments[1].value
    def release(self, name, *arguments):
        super().release(name, *arguments)
        if name == "cudaFreeHost":
            del self.blocks[arguments[0].value]
shared_memory.CudaRuntime = Counted
for length in range(1, 3001):
    tensor = shared_memory.tensor((length, 80), "float32")
    del tensor
    shared_memory.synchronise()
print(json.dumps([len(Counted.blocks), sum(Counted.blocks.values())]))
held = [shared_memory.tensor((24 << 20,), "uint8") for _ in range(4)]
addresses = [tensor.data_ptr() for tensor in held]
del held
other = shared_memory.tensor((24 << 20,), "uint8")
assert other.data_ptr() not in addresses, "nobody has waited yet"
shared_memory.synchronise()
print(json.dumps(sum(Counted.blocks.values())))
# As the garbage collector may.
with shared_memory._memory()._lock:
    del other
"""


def test_blocks_of_many_sizes_are_bounded(machine: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LENGTHS],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, **machine},
    )
    assert done.returncode == 0, done.stderr
    lengths, large = map(json.loads, done.stdout.splitlines())
    # Powers of two from a page to a mebibyte.
    assert lengths == [9, sum(4096 << power for power in range(9))]
    # One is in use, and of the others two are kept.
    assert large == 3 * (24 << 20)


# Prints what the driver has noted when a bundle is loaded.
_ALLOCATED = """
import os, sys
from device_agent import runtime
model = runtime.load(sys.argv[1], trust="unsigned")
print(open(os.environ["EMULATED_ALLOCATED"]).read())
"""


def _kept(noted: str) -> Counter[int]:
    """Sizes of what was allocated and is not free, with their numbers."""
    sizes = [int(line) for line in noted.split()]
    return Counter(size for size in sizes if size > 0) - Counter(-size for size in sizes if size < 0)


def test_weights_lie_side_by_side_in_one_allocation(
    tmp_path: Path, machine: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    emulated.take_the_place_of_nvrtc(monkeypatch)
    bundle, _ = gpu_bundle(layers(tmp_path / "model.onnx"), tmp_path)
    manifest = json.loads((bundle / "manifest.json").read_text())
    sizes = [tensor_bytes(tuple(one["shape"]), one["dtype"]) for one in manifest["parameters"]]
    assert len(sizes) >= 3 and any(size % 256 for size in sizes)
    weights = sum(-(-size // 256) * 256 for size in sizes)
    monkeypatch.setenv("EMULATED_ALLOCATED", str(tmp_path / "allocated"))
    command = [sys.executable, "-c", _ALLOCATED, bundle]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **machine})
    (tmp_path / "allocated").unlink()
    with emulated.native_session(bundle, tmp_path, machine, monkeypatch):
        native = (tmp_path / "allocated").read_text()
    for noted in (done.stdout, native):
        kept = _kept(noted)
        assert kept[weights] == 1
        # Blocks of activations and outputs are whole pages; inputs are in memory that the CPU shares.
        others = sum(size * count for size, count in kept.items()) - weights
        assert others <= manifest["memory"]["activations_bytes"] + 4096 * (sum(kept.values()) - 1)
