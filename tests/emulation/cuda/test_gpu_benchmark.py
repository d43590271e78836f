"""The benchmark of GPUs from the kit to the summary, on a driver that runs kernels on this machine's CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from benchmarks.gpu import __main__ as benchmark
from benchmarks.gpu.kit import Kit
from benchmarks.gpu.layers import convolution, product
from benchmarks.gpu.peak import peak_programs
from benchmarks.gpu.prepare import KitWriter, coarse, gpu_profile_of
from benchmarks.gpu_written import __main__ as written
from benchmarks.gpu_written.prepare import MEASURED, add
from benchmarks.gpu_written.tasks import WithheldTask
from host.schedules import space_for
from host.schedules.proposer import Estimate
from host.tlm.proposer import Tlm
from host.tuning.proposers.random_sampling import RandomSampling
from targets.nvidia import ORIN_NANO
from tests.emulation.cuda import emulated
from tests.emulation.cuda.test_bundles import layers
from tests.shared_cache import executor_for
from tests.unit.schedules import functions as fn

# Every stage in a process of its own, with a kit made before; rules and the driver have tests of their own.
pytestmark = pytest.mark.long

PRODUCT, CONVOLUTION = "small product 24x48x40", "small convolution 3x3/2 7x7x16 to 32"
ADDITION, INT8 = "small addition", "int8 products"


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kit of two layers, a task and a model, for the emulated GPU."""
    folder = tmp_path_factory.mktemp("kit")
    with pytest.MonkeyPatch.context() as patch:
        emulated.take_the_place_of_nvrtc(patch)
        writer = KitWriter(folder / "kit", gpu_profile_of(ORIN_NANO, "12.6"), 1)
        writer.add_peaks(peak for peak in peak_programs(1, 1) if peak.name == INT8)
        writer.add_layer(product("small", 24, 48, 40))
        writer.add_layer(convolution("small", 7, 16, 32, 3, 2))
        writer.add_task(ADDITION, fn.task(fn.addition(4, 64)))
        model = layers(folder / "layers.onnx", (72, 64))
        coarse(model)
        writer.add_model("layers", model)
        writer.write(executor_for("x86_64"), {"command": "a test"})
    return folder / "kit"


def _figures(folder: Path) -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}


def test_everything_is_measured_and_a_later_run_goes_on(
    kit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    emulated.emulated_driver(tmp_path)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    results = tmp_path / "results"
    command = [str(kit), str(results), "--seconds", "600"]
    assert benchmark.main(command) == 0, capfd.readouterr().out
    first = _figures(results)
    assert first["machine"]["gpu"]["capability"] == "8.7"
    assert first["machine"][INT8]["operations_per_s"] > 0
    # The emulated driver has one amount of memory for all processes.
    assert first["machine"]["context"] == {"bytes": 0}
    for name in (PRODUCT, CONVOLUTION):
        assert first["layers"][name]["rule"] == "cuda_mma"
        assert 0 < first["layers"][name]["difference"] < 2e-3
        assert len(first["programs"][name]["programs"]) == len(Kit(kit).tasks[name]["programs"])
    assert all("seconds" in one for one in first["programs"][ADDITION]["programs"])
    model = first["models"]["layers"]
    assert model["latency_s"] > 0 and model["first_run_s"] > 0 and model["kernels"]
    assert model["activations_bytes"] > 0
    # There is no GPU for torch, and no tool of NVIDIA: a reason is kept, and everything else goes on.
    assert "sees no GPU" in first["layer_peers"][PRODUCT]["error"]
    assert "sees no GPU" in first["model_peers"]["layers graph"]["error"]
    assert "no CUDAExecutionProvider" in first["model_peers"]["layers onnxruntime-graph"]["error"]
    found = first["summary"]
    assert found["programs"] == sum(len(each["programs"]) for each in first["programs"].values())
    assert f"layer_peers: {PRODUCT}" in found["errors"]
    assert not [name for name in found["errors"] if name.startswith(("layers:", "models:", "programs:"))]

    kept = json.loads((results / "layers.json").read_text())
    del kept[CONVOLUTION]
    (results / "layers.json").write_text(json.dumps(kept))
    assert benchmark.main(command) == 0
    second = _figures(results)
    assert second["layers"][PRODUCT] == first["layers"][PRODUCT]
    assert CONVOLUTION in second["layers"]
    assert second["models"] == first["models"]


class Chance(RandomSampling):
    """Proposes as chance does, whatever the estimate is."""

    def by(self, estimate: Estimate | None) -> Chance:
        return self


def test_arms_are_timed_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chance takes the place of the language model: both arms have their programs in one kit."""
    emulated.take_the_place_of_nvrtc(monkeypatch)
    folder, profile = tmp_path / "kit", gpu_profile_of(ORIN_NANO, "12.6")
    writer = KitWriter(folder, profile, 0)
    for layer in (product("small", 24, 48, 40), product("other", 16, 64, 32)):
        space = space_for(fn.task(layer.function), profile.hardware, 1)
        task = WithheldTask(f"net {layer.name}", "net", "fp16", space, 12_000.0)
        count = add(writer, task, profile, cast(Tlm, Chance()), 2)
        assert count <= 5 * MEASURED + 7
    writer.write(None, {"command": "a test"})
    emulated.emulated_driver(tmp_path)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    results, output = tmp_path / "results", tmp_path / "figures.json"
    command = [str(folder), str(results), "--stages", "machine", "programs", "--seconds", "600"]
    assert benchmark.main(command) == 0
    assert written.main([str(folder), str(results), "--json", str(output)]) == 0
    found = json.loads(output.read_text())
    assert found["tasks"] == found["large"]["tasks"] == 2 and not found["errors"]
    assert found["programs"] == sum(len(task["programs"]) for task in Kit(folder).tasks.values())
    for budget in ("1", "10"):
        for slower in ("random32_t", "infilled_random32_t"):
            assert found["ratios"][budget][f"tlm32_t/{slower}"]["cuda_mma fp16"]["tasks"] == 2
    assert found["gpu"]["capability"] == "8.7"


def test_a_program_that_is_wrong_is_no_figure(
    kit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel of the convolution in the place of the product's computes something else."""
    plan = json.loads((kit / "plan.json").read_text())
    plan["tasks"][PRODUCT]["programs"][0] = plan["tasks"][CONVOLUTION]["programs"][0]
    plan["tasks"][CONVOLUTION]["programs"] = [{**plan["tasks"][CONVOLUTION]["programs"][0], "cubin": "none"}]
    wrong = tmp_path / "kit"
    wrong.mkdir()
    (wrong / "plan.json").write_text(json.dumps(plan))
    (wrong / "cubins.zip").symlink_to(kit / "cubins.zip")
    emulated.emulated_driver(tmp_path)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    results = tmp_path / "results"
    command = [sys.executable, "-m", "benchmarks.gpu", str(wrong), str(results), "--stage", "layers"]
    assert subprocess.run(command, check=False).returncode == 0
    found = json.loads((results / "layers.json").read_text())
    assert "of the largest result" in found[PRODUCT]["error"] and "seconds" not in found[PRODUCT]
    assert "KeyError" in found[CONVOLUTION]["error"]
