"""Language models on a GPU, on the driver that runs kernels on this machine's CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from host.compile.bundle_builder import BundleBuilder
from host.compile.model_compiler import ModelCompiler
from host.compile.model_file import read_model
from host.model import DeviceProfile
from host.options import CompileOptions
from host.progress import Silence, StageClock
from targets import board_for, declared
from tests.emulation.cuda import emulated
from tests.emulation.cuda.test_bundles import profile
from tests.integration.native.process import Executor
from tests.shared_cache import executor_for
from tests.unit.importers.decoders.models import save

PROMPT = [7, 101, 42, 42, 9, 3, 77, 20, 64, 5, 1, 90, 33, 8, 15, 2, 60, 61, 4]
COUNT = 12
_WRITE = """
import json, sys
from device_agent import runtime
model = runtime.load(sys.argv[1], trust="unsigned")
prompt, count = json.loads(sys.argv[2])
print(json.dumps([int(token) for token in model.generate(prompt, max_tokens=count, speculate=False)]))
"""


# Whole models on emulated GPUs: rules have tests of their own.
pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]


def compiled(folder: Path, where: Path, on: DeviceProfile, quantize: str = "") -> tuple[Path, Counter[str]]:
    """The bundle, and the number of kernels of each rule; all come from one."""
    where.mkdir()
    kind = {"dtype": "fp16"} if quantize == "fp16" else {"quantize": quantize}
    terms = CompileOptions(model=folder, context_tokens=64, **kind)
    clock = StageClock(Silence())
    builder = BundleBuilder(ModelCompiler(terms, on, where, clock))
    made = builder.compile(read_model(terms, clock))
    assert {task.source for task in made.tasks} == {"gensor"}, [task.reason for task in made.tasks]
    return builder.directory("tvm"), Counter(task.rule for task in made.tasks)


def written(bundle: Path, environment: dict[str, str]) -> list[int]:
    """What the Python runtime writes behind the prompt."""
    command = [sys.executable, "-c", _WRITE, str(bundle), json.dumps([PROMPT, COUNT])]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    return [int(token) for token in json.loads(done.stdout)]


@pytest.mark.parametrize("quantize", ["", "int4", "int8", "fp16"])
def test_the_gpu_writes_what_the_cpu_does(
    quantize: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By prefill and steps in the Python runtime, and by steps in the native executor: no time decides."""
    folder = tmp_path / "tiny"
    save(folder, "qwen3", head_dim=32)
    board = board_for(declared()["x86_64-v3"])
    assert board is not None
    cpu = DeviceProfile("here", board, board.hardware, 1)
    wanted = written(compiled(folder, tmp_path / "cpu", cpu, quantize)[0], {})
    emulated.take_the_place_of_nvrtc(monkeypatch)
    machine = emulated.machine_with_gpu(tmp_path / "machine")
    bundle, rules = compiled(folder, tmp_path / "gpu", profile(), quantize)
    assert rules["cuda_cached_attention"] == 3
    assert written(bundle, machine) == wanted
    monkeypatch.setenv("LD_LIBRARY_PATH", machine["LD_LIBRARY_PATH"])
    with Executor([str(executor_for("x86_64"))], tmp_path / "session", 120.0) as running:
        assert running.greedy(bundle, PROMPT, COUNT) == wanted
