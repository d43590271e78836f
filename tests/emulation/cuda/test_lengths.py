"""A range of lengths on a GPU: one bundle for all of them, on the emulated driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from host.compile.bundle_builder import BundleBuilder
from host.compile.model_compiler import ModelCompiler
from host.compile.model_file import read_model
from host.options import CompileOptions
from host.progress import Silence, StageClock
from tests.emulation.cuda import emulated
from tests.emulation.cuda.test_bundles import profile
from tests.integration.small_models import encoder

LOW, HIGH = 1, 40
# Both ends, tiles that are full and not, and lengths that come again, so that none rests on another's memory.
LENGTHS = (40, 1, 2, 7, 16, 31, 33, 33, 33, 40, 40, 5)

_RUN = """
import json, sys
import numpy
from device_agent import runtime
model = runtime.load(sys.argv[1], trust="unsigned")
found, launches = {}, []
with numpy.load(sys.argv[2]) as given:
    for run in range(int(sys.argv[3])):
        inputs = [given["%d_%d" % (run, i)] for i in range(len(model.signature.inputs))]
        for i, value in enumerate(model.run(inputs).values()):
            found["%d_%d" % (run, i)] = value
        launches.append(model.machine.launch)
numpy.savez(sys.argv[4], **found)
print(json.dumps(launches))
"""


def inputs_of(length: int) -> list[np.ndarray]:
    draw = np.random.default_rng(length)
    mask = np.ones((1, length), np.int64)
    mask[0, 1 + length // 2 :] = 0
    return [draw.integers(0, 50, (1, length)), mask]


def check(model: Path, length: int, found: list[np.ndarray]) -> None:
    session = onnxruntime.InferenceSession(model)
    names = [one.name for one in session.get_inputs()]
    wanted = session.run(None, dict(zip(names, inputs_of(length), strict=True)))
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4, err_msg=f"length {length}")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, dict[str, str]]:
    """A model file, its bundle for 1 to 40, and the environment of the emulated machine."""
    folder = tmp_path_factory.mktemp("lengths")
    model = encoder(folder / "model.onnx", hidden=16)
    options = CompileOptions(model, shapes={"seq": ((LOW, HIGH),)}, processor="gpu")
    clock = StageClock(Silence())
    with pytest.MonkeyPatch.context() as patch:
        emulated.take_the_place_of_nvrtc(patch)
        builder = BundleBuilder(ModelCompiler(options, profile(), folder, clock))
        made = builder.compile(read_model(options, clock))
    assert {task.source for task in made.tasks} == {"gensor"}, [task.reason for task in made.tasks]
    return model, builder.directory("tvm"), emulated.machine_with_gpu(folder / "machine")


def test_lengths_in_turn(served: tuple[Path, Path, dict[str, str]], tmp_path: Path) -> None:
    model, bundle, machine = served
    given = {f"{run}_{i}": v for run, n in enumerate(LENGTHS) for i, v in enumerate(inputs_of(n))}
    np.savez(tmp_path / "inputs.npz", **given)
    files = tmp_path / "inputs.npz", str(len(LENGTHS)), tmp_path / "found.npz"
    done = subprocess.run(
        [sys.executable, "-c", _RUN, bundle, *files],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **machine},
    )
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "found.npz") as found:
        for run, length in enumerate(LENGTHS):
            check(model, length, [found[key] for key in found.files if key.startswith(f"{run}_")])
    launches = json.loads(done.stdout)
    repeats = [run for run in range(1, len(LENGTHS)) if LENGTHS[run] == LENGTHS[run - 1]]
    assert [run for run, how in enumerate(launches) if how == "CUDA graph"] == repeats, launches
    assert {how for run, how in enumerate(launches) if run not in repeats} == {"kernel by kernel"}


def test_lengths_in_turn_by_the_native_executor(
    served: tuple[Path, Path, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, bundle, machine = served
    with emulated.native_session(bundle, tmp_path, machine, monkeypatch) as running:
        for length in LENGTHS:
            check(model, length, running.ask("run", inputs_of(length))[1])
