from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import onnx
import psutil
import pytest
from onnx import TensorProto, helper

import sdk
from host.errors import DeviceError, DeviceFull, MeasureError
from host.progress import Silence
from sdk.cli.main import main
from tests.integration import small_models


@pytest.fixture(autouse=True)
def references() -> None:
    """Original runtimes run in processes of their own, as those of a user do."""


@pytest.fixture(autouse=True)
def model_files() -> None:
    """Model files are read in a worker, as those of a user are."""


def truncated(path: Path) -> Path:
    small_models.convnet(path)
    path.write_bytes(path.read_bytes()[:700])
    return path


def wrong_opset(path: Path) -> Path:
    small_models.convnet(path)
    model = onnx.load(path)
    model.opset_import[0].version = 99
    path.write_bytes(model.SerializeToString())
    return path


def text(path: Path) -> Path:
    path.write_text("hello, I am no model\n" * 20)
    return path


def empty(path: Path) -> Path:
    path.touch()
    return path


def open_batch(path: Path) -> Path:
    return small_models.convnet(path, batch="batch")


def _relu(path: Path, read: str, shape: list[int], outputs: bool = True) -> Path:
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    nodes = [helper.make_node("Relu", [read], ["y"])]
    graph = helper.make_graph(nodes, "g", tensors[:1], tensors[1:] if outputs else [])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def without_outputs(path: Path) -> Path:
    return _relu(path, "x", [2, 8], outputs=False)


def empty_input(path: Path) -> Path:
    return _relu(path, "x", [0, 8])


def unknown_value(path: Path) -> Path:
    return _relu(path, "nothere", [2, 8])


Maker = Callable[[Path], Path]


@pytest.mark.parametrize(
    ("name", "make", "arguments", "code", "words"),
    [
        ("cut.onnx", truncated, [], 2, "truncated"),
        ("text.onnx", text, [], 2, "not an ONNX model"),
        ("zero.onnx", empty, [], 2, "empty"),
        ("text.pt2", text, [], 2, "not an archive of torch.export"),
        ("text.tflite", text, [], 2, "not a TFLite model"),
        ("model.xyz", text, [], 2, ".onnx, .pt2 (torch.export), .tflite or .gguf"),
        ("opset.onnx", wrong_opset, [], 2, "operator set 99"),
        ("outputs.onnx", without_outputs, [], 2, "has no outputs"),
        ("none.onnx", empty_input, [], 2, "input 'x' is empty (0 x 8), and so is every output"),
        ("edge.onnx", unknown_value, [], 1, "nothere' is not a graph input"),
        ("nan.onnx", small_models.with_nan, [], 2, "weight 'w' holds NaN"),
        ("unknown.onnx", small_models.unknown_operator, [], 1, "com.example:Frobnicate"),
        ("nonzero.onnx", small_models.uncompiled_operator, ["--backend", "tvm"], 1, "NonZero"),
    ],
)
def test_each_file_that_is_wrong_is_one_line_and_leaves_nothing(
    name: str,
    make: Maker,
    arguments: list[str],
    code: int,
    words: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    refused(make(tmp_path / name), arguments, code, words, tmp_path, capfd)


@pytest.mark.usefixtures("own_files")
@pytest.mark.parametrize(
    ("name", "make", "arguments", "code", "words"),
    [
        ("open.onnx", open_batch, [], 2, "--shape image="),
        ("open.onnx", open_batch, ["--shape", "image=1,3,16"], 2, "image"),
        ("net.onnx", small_models.convnet, ["--shape", "image=1,4,16,16"], 2, "image"),
        ("net.onnx", small_models.convnet, ["--shape", "picture=1,3,16,16"], 2, "picture"),
        ("net.onnx", small_models.convnet, ["--device", "fridge"], 2, "no device is called 'fridge'"),
        (
            "net.onnx",
            small_models.convnet,
            ["--device", "jetson"],
            2,
            "no registered device is of the family",
        ),
        ("net.onnx", small_models.convnet, ["--device", "me@pi"], 2, "sdk devices add NAME --host me@pi"),
        ("net.onnx", small_models.convnet, ["--threads", "4096"], 2, "cores"),
        ("net.onnx", small_models.convnet, ["--threads", "9999"], 2, "give 0 to 4096"),
        ("net.onnx", small_models.convnet, ["--backend", "litert"], 1, "litert"),
    ],
)
def test_each_option_that_is_wrong_is_one_line_and_leaves_nothing(
    name: str,
    make: Maker,
    arguments: list[str],
    code: int,
    words: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The files are right, so that they need no worker."""
    refused(make(tmp_path / name), arguments, code, words, tmp_path, capfd)


def refused(
    model: Path,
    arguments: list[str],
    code: int,
    words: str,
    folder: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A deployment ends with an exit code and one line that has some words in it; it leaves no file."""
    assert main(["deploy", str(model), *arguments]) == code
    printed = capfd.readouterr()
    lines = printed.err.splitlines()
    assert len(lines) == 1, printed.err
    assert lines[0].startswith("error: ")
    assert words in lines[0]
    assert not list((folder / "work").rglob("*.part"))
    assert not list((folder / "work").rglob("manifest.json"))
    assert not list((folder / "home").rglob("manifest.json"))


def test_energy_without_a_sensor_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from host.transport import Device

    monkeypatch.setattr(Device, "sensor", lambda self: {"unavailable": "no RAPL"})
    model = small_models.convnet(tmp_path / "net.onnx")
    with pytest.raises(MeasureError, match=r"--objective energy: local cannot measure it \(no RAPL\)"):
        sdk.deploy(model, objective="energy")


def agent() -> psutil.Process:
    """The device agent that this process has started."""
    for process in psutil.Process().children(recursive=True):
        if "serve" in process.cmdline() and "device_agent" in process.cmdline():
            return process
    raise AssertionError("no device agent runs")


class At(Silence):
    """Progress that does something when a stage begins."""

    def __init__(self, stage: str, action: Callable[[], object]) -> None:
        self._stage = stage
        self._action = action

    def stage(self, name: str) -> None:
        if name == self._stage:
            self._action()


@pytest.mark.parametrize("stage", ["lower", "verify", "measure", "install"])
def test_a_device_that_goes_away_is_one_clear_error(stage: str, tmp_path: Path) -> None:
    model = small_models.convnet(tmp_path / "net.onnx")
    with pytest.raises(DeviceError, match="local") as lost:
        sdk.deploy(model, threads=1, bundle=tmp_path / "out", progress=At(stage, lambda: agent().kill()))
    assert "\n" not in str(lost.value)
    assert lost.value.exit_code == 1
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.rglob("*.part"))


def test_a_full_device_keeps_nothing_of_the_bundle(tmp_path: Path) -> None:
    model = small_models.convnet(tmp_path / "net.onnx")

    def fill() -> None:
        agent().rlimit(psutil.RLIMIT_FSIZE, (100, 100))

    with pytest.raises(DeviceFull):
        sdk.deploy(model, threads=1, bundle=tmp_path / "out", progress=At("install", fill))
    assert not (tmp_path / "out").exists()
    with sdk.connect("local") as device:
        assert device.bundles() == []


@pytest.mark.parametrize("limit_bytes", [1 << 9, 1 << 15])
def test_a_full_disk_is_one_line(limit_bytes: int, tmp_path: Path) -> None:
    model = small_models.convnet(tmp_path / "net.onnx")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))

    done = subprocess.run(
        [sys.executable, "-m", "sdk.cli", "deploy", str(model), "--backend", "tvm", "--bundle", "out"],
        capture_output=True,
        text=True,
        preexec_fn=limit,
        cwd=tmp_path / "work",
        env={**os.environ, "PYTHONPATH": str(Path(sdk.__file__).parents[1]), "PYTHONDONTWRITEBYTECODE": "1"},
        check=False,
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "space" in done.stderr
    assert list((tmp_path / "work").iterdir()) == []


def test_a_damaged_bundle_does_not_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = small_models.convnet(tmp_path / "net.onnx")
    sdk.compile(model, output=tmp_path / "bundle", threads=1)
    manifest = json.loads((tmp_path / "bundle" / "manifest.json").read_text())
    library = tmp_path / "bundle" / manifest["model"]
    library.write_bytes(library.read_bytes()[:-5])
    (tmp_path / "x.npz").write_bytes((tmp_path / "bundle" / "golden.npz").read_bytes())
    capfd.readouterr()
    assert main(["run", str(tmp_path / "bundle"), "--input", str(tmp_path / "x.npz")]) == 1
    printed = capfd.readouterr().err
    assert "does not match the hash" in printed
    assert printed.count("\n") == 1
