"""The benchmark of GPUs where something is missing or ends its process: what it says, and how it goes on."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from benchmarks.gpu import __main__ as benchmark
from benchmarks.gpu import driver
from benchmarks.gpu.figures import Figures
from benchmarks.gpu.kit import CUBINS, PLAN, Kit
from benchmarks.gpu.peers import WAYS
from host.build.linker import zig_executable

# The first compilation of a machine makes a C library.
pytestmark = pytest.mark.timeout(900)

FINE, CRASHING = "fine", "crashing"
# Third-party packages of a machine with a GPU, beside the driver.
_BESIDE = """
import sys
from importlib.abc import MetaPathFinder

OURS = {"benchmarks", "device_agent", "host", "research", "tests"}

class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names | OURS | {"numpy"}:
            raise ModuleNotFoundError(f"{name} is not on a machine with a GPU")

sys.meta_path.insert(0, Missing())
import benchmarks.gpu.__main__, benchmarks.gpu.kernels, benchmarks.gpu.models
"""


def _driver(folder: Path, code: int = 0) -> Path:
    """A driver whose `cuInit` returns a code."""
    library = folder / "libcuda.so.1"
    source = Path(__file__).with_name("driver.c")
    command = [str(zig_executable()), "cc", "-std=c11", "-shared", "-fPIC", f"-DCODE={code}", "-w"]
    # Without -O2, zig first compiles libraries for a debugger, which nothing else needs.
    command += ["-O2", "-target", "x86_64-linux-gnu.2.31", "-o", str(library), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:3000]
    return library


def _kit(folder: Path, models: tuple[str, ...] = ()) -> Kit:
    """A kit of two loops, the first of which ends the process; and of the names of models."""
    launch = {"entry": "peak", "blocks": [1, 1, 1], "threads": [32, 1, 1], "arguments": [0]}
    entry = {"launches": [launch], "operations": 10, "result_bytes": 4}
    peaks = {name: {**entry, "cubin": name} for name in (CRASHING, FINE)}
    folder.mkdir()
    (folder / PLAN).write_text(json.dumps({"heading": {}, "peaks": peaks, "tasks": {}, "models": models}))
    with zipfile.ZipFile(folder / CUBINS, "w") as archive:
        for name, content in ((CRASHING, "crash"), (FINE, "fine")):
            archive.writestr(name, content)
    return Kit(folder)


def test_what_runs_beside_the_gpu_needs_numpy_alone() -> None:
    done = subprocess.run([sys.executable, "-c", _BESIDE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize(("code", "said"), [(100, "CUDA_ERROR_NO_DEVICE"), (34, "error 34")])
def test_no_gpu_is_as_final_as_no_driver(
    code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A driver without a device, and the stub that a toolkit has in the place of a driver."""
    monkeypatch.setattr(driver, "_LIBRARY", str(_driver(tmp_path, code)))
    monkeypatch.setitem(sys.modules, "benchmarks.gpu.peers.torch_peers", None)
    monkeypatch.setitem(sys.modules, "benchmarks.gpu.peers.onnxruntime_peers", None)
    kit, results = _kit(tmp_path / "kit", ("model",)), tmp_path / "results"
    # Another process would find no GPU either: all items fail in the first one.
    assert benchmark._stage("model_peers", kit, results, "run") == 0
    found = json.loads((results / "model_peers.json").read_text())
    assert len(found) == len(WAYS) and all("error" in item for item in found.values())
    assert benchmark._stage("machine", kit, results, "run") == benchmark._NO_GPU
    assert capsys.readouterr().err == f"no GPU: cuInit: {said}\n"


def test_without_a_gpu_the_benchmark_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _driver(tmp_path, 100)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    kit = _kit(tmp_path / "kit")
    assert benchmark.main([str(kit.folder), str(tmp_path / "results")]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "machine: there is no GPU, 0 items"
    assert not any(line.startswith("layers:") for line in said)


@pytest.mark.parametrize(
    ("capability", "runs"), [(None, True), ("9.9", True), ("9.0", True), ("8.7", False), ("11.0", False)]
)
def test_a_kit_for_another_gpu_is_refused_before_anything_is_measured(
    capability: str | None,
    runs: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The GPU has 9.9; machine code runs on later GPUs of its own major version, and on no others."""
    _driver(tmp_path)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    kit, results = _kit(tmp_path / "kit"), tmp_path / "results"
    plan = json.loads((kit.folder / PLAN).read_text())
    (kit.folder / PLAN).write_text(json.dumps({**plan, "capability": capability, "peaks": {}}))
    assert benchmark.main([str(kit.folder), str(results), "--stages", "machine"]) == (0 if runs else 1)
    said = capfd.readouterr()
    if runs:
        assert said.out.startswith("machine: done, 3 items")
    else:
        assert said.out.startswith("machine: the kit is for another GPU, 0 items")
        assert f"capability 9.9, and the kit's kernels are for {capability}" in said.err


def test_what_a_stage_has_started_ends_with_it(tmp_path: Path) -> None:
    started = tmp_path / "started"
    command = ["sh", "-c", f"sleep 100 & echo $! > {started}; wait"]
    assert benchmark._ended(command, 0.5) is None
    helper = Path(f"/proc/{int(started.read_text())}/stat")
    # Nobody may have asked for its exit code yet.
    assert not helper.exists() or helper.read_text().rpartition(")")[2].split()[0] == "Z"
    assert benchmark._ended(["sh", "-c", "exit 7"], 5.0) == 7


def test_an_item_that_ends_its_process_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    _driver(tmp_path)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    kit, results = _kit(tmp_path / "kit"), tmp_path / "results"
    command = [str(kit.folder), str(results), "--stages", "machine"]
    assert benchmark.main(command) == 0, capfd.readouterr()
    first = json.loads((results / "machine.json").read_text())
    assert first["gpu"]["name"] == "none"
    assert first[CRASHING]["error"] == "its process ended with -6"
    # All that is timed takes a millisecond.
    assert first[FINE]["operations_per_s"] == pytest.approx(1e4)
    assert benchmark.main(command) == 0
    second = json.loads((results / "machine.json").read_text())
    assert second[FINE] == first[FINE]
    assert second[CRASHING]["run"] != first[CRASHING]["run"], "it is tried again, once in each run"
    assert sorted(path.name for path in results.iterdir()) == ["machine.json", "summary.json"]


def test_what_failed_is_tried_last_by_the_next_run(tmp_path: Path) -> None:
    """The stage's time was up, or the whole benchmark was stopped: others are not kept waiting again."""

    def stopped() -> dict[str, object]:
        raise KeyboardInterrupt

    figures = Figures(tmp_path, "models", "first")
    with pytest.raises(KeyboardInterrupt):
        figures.take("slow", stopped)
    assert not Figures(tmp_path, "models", "second").failed("slow")
    assert Figures(tmp_path, "models", "second").interrupted("the time of its stage was up")
    later = Figures(tmp_path, "models", "second")
    assert not later.interrupted("nothing was begun")
    assert later.failed("slow") and not later.failed("other")
    assert later.items["slow"] == {"error": "the time of its stage was up", "run": "first"}
    assert later.take("slow", lambda: {"latency_s": 1.0}) and not later.failed("slow")


def test_a_folder_that_is_no_kit_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        benchmark.main([str(tmp_path), str(tmp_path / "results")])
    assert "is no kit" in capsys.readouterr().err
