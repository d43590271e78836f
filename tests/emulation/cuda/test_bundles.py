"""Bundles for a GPU from end to end, on a driver that runs kernels on this machine's CPU."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

import device_agent
from host.build.cuda.nvrtc import package_folders
from host.compile.bundle_builder import BundleBuilder
from host.compile.model_compiler import ModelCompiler
from host.compile.model_file import read_model
from host.model import DeviceProfile
from host.options import CompileOptions
from host.payload.cuda import cuda_runtime
from host.progress import Silence, StageClock
from targets import board_for, declared
from targets.nvidia import ORIN_NANO
from tests.emulation.cuda import emulated
from tests.integration.small_models import convnet, encoder, floats, save
from tests.scheduling.repetitions import in_turn

_RUN = """
import sys
import numpy
from device_agent import runtime
model = runtime.load(sys.argv[1], trust="unsigned")
with numpy.load(sys.argv[1] + "/golden.npz") as golden:
    given = [golden["case0_input%d" % i] for i in range(len(model.signature.inputs))]
numpy.savez(sys.argv[2], *model.run(given).values())
model.run(given)
"""


def masked(path: Path) -> Path:
    """A mask of booleans that one kernel writes and another reads, a softmax, and a sum over all."""
    nodes = [
        helper.make_node("Greater", ["a", "b"], ["mask"]),
        helper.make_node("Not", ["mask"], ["other"]),
        helper.make_node("Where", ["mask", "a", "b"], ["chosen"]),
        helper.make_node("Softmax", ["chosen"], ["shares"], axis=-1),
        helper.make_node("ReduceSum", ["shares", "axes"], ["total"], keepdims=0),
    ]
    outputs = [
        helper.make_tensor_value_info("other", TensorProto.BOOL, (4, 32)),
        floats("shares", 4, 32),
        floats("total", 32),
    ]
    return save(path, nodes, [floats("a", 4, 32), floats("b", 4, 32)], outputs, {"axes": np.array([0])})


def layers(path: Path, sizes: Sequence[int] = (72, 128, 96, 50)) -> Path:
    """Layers for five rows; the last of three has fewer columns than its weights are packed for."""
    draw = np.random.default_rng(3)
    weights, nodes = {}, []
    for number, (depth, columns) in enumerate(itertools.pairwise(sizes)):
        weights[f"w{number}"] = (draw.normal(size=(depth, columns)) / np.sqrt(depth)).astype(np.float32)
        weights[f"b{number}"] = draw.normal(size=columns).astype(np.float32)
        nodes += [
            helper.make_node("MatMul", [f"x{number}", f"w{number}"], [f"m{number}"]),
            helper.make_node("Add", [f"m{number}", f"b{number}"], [f"a{number}"]),
            helper.make_node("Tanh", [f"a{number}"], [f"x{number + 1}"]),
        ]
    last = floats(f"x{len(sizes) - 1}", 5, sizes[-1])
    return save(path, nodes, [floats("x0", 5, sizes[0])], [last], weights)


MODELS = {"convnet": convnet, "masked": masked}
# Models with products, and how many of their kernels run on tensor cores: all, also the first layer, which
# reads an input in single precision.
PRODUCTS = {
    "layers": (layers, 3),
    # Both products of attention are in one kernel.
    "encoder": (lambda path: encoder(path, 64, 2, 24), 4),
    "encoder of odd length": (lambda path: encoder(path, 64, 2, 37), 4),
}


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment of processes on the emulated machine."""
    return emulated.machine_with_gpu(tmp_path_factory.mktemp("machine"))


def profile() -> DeviceProfile:
    """This machine with the GPU of an Orin Nano."""
    found = board_for(declared()["x86_64-v3"])
    assert found is not None
    board = replace(found, gpu=ORIN_NANO).on_gpu()
    return DeviceProfile("emulated", board, board.hardware, 1, {"cuda": "12.6"})


def gpu_bundle(path: Path, folder: Path, dtype: str = "fp32") -> tuple[Path, Counter[str]]:
    """Compile a model for the emulated GPU; every kernel must come from a rule.

    Returns:
        The bundle, and the number of kernels of each rule.
    """
    options = CompileOptions(model=path, dtype=dtype)
    clock = StageClock(Silence())
    builder = BundleBuilder(ModelCompiler(options, profile(), folder, clock))
    made = builder.compile(read_model(options, clock))
    assert {task.source for task in made.tasks} == {"gensor"}, [task.reason for task in made.tasks]
    return builder.directory("tvm"), Counter(task.rule for task in made.tasks)


def run_bundle(bundle: Path, output: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _RUN, str(bundle), str(output)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )


@in_turn("name, dtype", MODELS, ["fp32", "fp16"])
def test_model_computes_on_the_gpu(
    name: str,
    dtype: str,
    tmp_path: Path,
    machine: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    emulated.take_the_place_of_nvrtc(monkeypatch)
    bundle, _ = gpu_bundle(MODELS[name](tmp_path / "model.onnx"), tmp_path, dtype)
    check_outputs(bundle, tmp_path, machine, {"fp32": 1e-5, "fp16": 5e-3}[dtype])


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.long] * (one == "encoder")) for one in PRODUCTS]
)
def test_products_of_halves_run_on_tensor_cores(
    name: str, tmp_path: Path, machine: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    emulated.take_the_place_of_nvrtc(monkeypatch)
    make, count = PRODUCTS[name]
    bundle, rules = gpu_bundle(make(tmp_path / "model.onnx"), tmp_path, "fp16")
    assert (rules["cuda_mma"], rules["cuda_attention"]) == (count, int(name.startswith("encoder")))
    check_outputs(bundle, tmp_path, machine, 1e-2)


@pytest.mark.parametrize("name", ["layers", "convnet"])
def test_products_of_bytes_run_on_tensor_cores(
    name: str, tmp_path: Path, machine: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that ONNX Runtime has quantised, beside ONNX Runtime."""
    emulated.take_the_place_of_nvrtc(monkeypatch)
    make, count = {"layers": (layers, 3), "convnet": (convnet, 2)}[name]
    quantised = in_bytes(make(tmp_path / "floats.onnx"), tmp_path / "model.onnx")
    bundle, rules = gpu_bundle(quantised, tmp_path)
    assert rules["cuda_mma"] == count
    # One step of a byte between neighbours: a sum may be rounded the other way.
    check_outputs(bundle, tmp_path, machine, 2e-2)


def in_bytes(model: Path, target: Path) -> Path:
    """The model with its products in bytes, by ONNX Runtime's own quantiser."""
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in onnx.load(model).graph.input
    }
    draw = np.random.default_rng(0)
    samples = [
        {name: draw.standard_normal(shape).astype("float32") for name, shape in shapes.items()}
        for _ in range(3)
    ]

    class Samples(CalibrationDataReader):
        left = iter(samples)

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.left, None)

    quantize_static(
        model, target, Samples(), quant_format=QuantFormat.QDQ, per_channel=True, weight_type=QuantType.QInt8
    )
    return target


def check_outputs(bundle: Path, tmp_path: Path, machine: dict[str, str], tolerance: float) -> None:
    """Run a bundle on the machine; no output may be further off than a share of its largest element."""
    output = tmp_path / "outputs.npz"
    done = run_bundle(bundle, output, machine)
    assert done.returncode == 0, done.stderr
    with np.load(output) as found, np.load(bundle / "golden.npz") as golden:
        assert found.files
        for index, key in enumerate(found.files):
            wanted = golden[f"case0_output{index}"]
            assert found[key].dtype == wanted.dtype
            difference = np.abs(found[key].astype("float64") - wanted).max()
            assert difference <= tolerance * np.abs(wanted.astype("float64")).max()


def test_machine_without_a_driver_says_so(tmp_path: Path) -> None:
    environment = emulated.machine_with_gpu(tmp_path / "machine")
    (tmp_path / "machine" / "libcuda.so.1").unlink()
    command = [sys.executable, "-c", "from device_agent.execute import ffi; ffi.load_cuda()"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    assert done.returncode != 0
    assert "libcuda.so.1" in done.stderr.splitlines()[-1]


def test_errors_of_the_driver_arrive(machine: dict[str, str]) -> None:
    """An allocation beyond the memory is an error with the driver's name, and the process lives."""
    text = """
from device_agent.execute import ffi
device = ffi.load_cuda()
try:
    ffi.empty((1 << 31,), "float32", device)
except Exception as error:
    print("refused", error)
print(ffi.to_bytes(filled := ffi.empty((4,), "int8", device), 4).hex())
"""
    done = subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **machine},
    )
    assert "refused" in done.stdout, done.stderr
    assert "OUT_OF_MEMORY" in done.stdout.upper().replace(" ", "_")
    assert done.stdout.endswith("ffffffff\n"), "the driver's pattern for memory that nobody wrote"


def symbols(path: Path, *options: str) -> set[str]:
    """Dynamic symbols of a library, without their versions."""
    done = subprocess.run(["nm", "-D", *options, str(path)], capture_output=True, text=True, check=True)
    return {line.split()[-1] for line in done.stdout.splitlines()}


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
def test_runtime_library_is_what_tvm_wants(architecture: str) -> None:
    import tvm

    wanted = symbols(Path(tvm.__file__).parent / "lib" / "libtvm_runtime_cuda.so", "--undefined-only")
    cuda = {name.split("@")[0] for name in wanted if name.startswith("cuda")}
    library = cuda_runtime(architecture)
    defined = symbols(library, "--defined-only")
    assert len(cuda) > 20
    assert {f"{name}@@libcudart.so.13" for name in cuda} <= defined
    outside = symbols(library, "--undefined-only")
    versions = {name.split("GLIBC_2.")[1] for name in outside if "GLIBC_2." in name}
    assert all(int(version.split(".")[0]) <= 31 for version in versions), "JetPack 5 has glibc 2.31"
    assert not [name for name in outside if name.startswith("cu")], "the driver is looked up when it is there"


def test_the_driver_has_what_is_asked_of_it() -> None:
    """Every function is one that NVIDIA's own runtime library asks of the driver."""
    sources = Path(device_agent.__file__).parent / "native" / "cuda"
    asked = set[str]()
    for name in ("cudart.c", "driver.h"):
        asked |= set(re.findall(r"X\((cu\w+),", (sources / name).read_text()))
    assert len(asked) > 30
    (library,) = (
        path
        for folder in package_folders()
        for path in (folder / "cuda_runtime" / "lib").glob("libcudart.so.12")
    )
    known = set(re.findall(rb"\0(cu[A-Z]\w+)(?=\0)", library.read_bytes()))
    assert {name for name in asked if name.removesuffix("_v2").encode() not in known} == set()
