"""One wheel; the agent runs from it with nothing but the TVM runtime beside it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import sdk
from host import bundle
from host.keys import host_key
from tests.integration import small_models

ROOT = Path(sdk.__file__).parents[1]
PACKAGES = ("sdk", "research", "host", "targets", "device_agent")
WEIGHTS = [
    f"host/tlm/weights/{name}"
    for name in ("weights.safetensors", "model.json", "README.md", "replay.jsonl.gz")
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built without anything from an index."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout
    for name in tracked.decode().split("\0"):
        top = name.split("/")[0]
        if name and (top in PACKAGES or name in ("pyproject.toml", "README.md")):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    # The weights are made apart from the sources; that the wheel takes them is seen with any files.
    for name in WEIGHTS:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        if not (source / name).exists():
            (source / name).write_bytes(b"made for this test")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(folder), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def board(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and its base dependency alone; returns its interpreter."""
    folder = tmp_path_factory.mktemp("board")
    venv.create(folder, with_pip=False, symlinks=True)
    site = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    target = ["--target", str(site), "--no-deps", "--no-index", "--no-compile"]
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            *target,
            str(wheel),
        ],
        check=True,
    )
    # What pip would install for the base: it is the same wheel that this interpreter has.
    for name in ("tvm_ffi", "typing_extensions"):
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.origin is not None
        origin = Path(spec.origin)
        source = origin.parent if origin.name == "__init__.py" else origin
        (site / source.name).symlink_to(source)
    return folder / "bin" / "python"


def run(board: Path, arguments: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the board's interpreter with nothing of this one in sight."""
    spec = importlib.util.find_spec("tvm")
    assert spec is not None and spec.origin is not None
    runtime = Path(spec.origin).parent / "lib" / "libtvm_runtime.so"
    environment = {"PATH": os.environ["PATH"], "EDGETLM_RUNTIME_LIB": str(runtime), "HOME": str(folder)}
    return subprocess.run(
        [str(board), "-I", *arguments],
        capture_output=True,
        text=True,
        env=environment,
        cwd=folder,
        check=False,
    )


def test_the_wheel_holds_the_packages_and_their_data(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        entry_points = next(
            archive.read(name).decode() for name in names if name.endswith("entry_points.txt")
        )
    packages = {name.split("/")[0] for name in names if not name.split("/")[0].endswith(".dist-info")}
    assert packages == set(PACKAGES)
    data_files = (
        "sdk/py.typed",
        "host/py.typed",
        "sdk/report/report.html.j2",
        "research/pretraining/weights_card.md.j2",
    )
    for data in (*data_files, *WEIGHTS):
        assert data in names
    # An installed host builds the native executor out of these.
    sources = [path for path in (ROOT / "device_agent" / "native").rglob("*") if path.is_file()]
    assert sources and {path.relative_to(ROOT).as_posix() for path in sources} <= set(names)
    assert "sdk = sdk.cli.entry:main" in entry_points
    assert "device-agent = device_agent.__main__:main" in entry_points


def test_the_agents_runtime_needs_no_host_package(board: Path, tmp_path: Path) -> None:
    model = small_models.convnet(tmp_path / "net.onnx")
    sdk.compile(model, output=tmp_path / "bundle", threads=1, backend="tvm")
    manifest = bundle.load(tmp_path / "bundle")
    [case, *_] = bundle.golden_cases(tmp_path / "bundle", manifest)
    (tmp_path / "image.bin").write_bytes(case.inputs[0].tobytes())
    program = """
import importlib.util, json, sys
import device_agent.runtime
model = device_agent.runtime.load(sys.argv[1])
image = memoryview(open(sys.argv[2], "rb").read()).cast("f", (1, 3, 16, 16))
scores = model.run({"image": image})["scores"]
absent = [name for name in ("numpy", "torch", "tvm", "onnx") if importlib.util.find_spec(name) is None]
import device_agent.execute.ffi as ffi
flat = memoryview(ffi.to_bytes(scores, 40)).cast("B").cast("f").tolist()
print(json.dumps({"absent": absent, "scores": flat}))
"""
    load = ["-c", program, str(tmp_path / "bundle"), str(tmp_path / "image.bin")]
    stranger = run(board, load, tmp_path)
    assert "who is not trusted here" in stranger.stderr
    own = host_key()
    trusted = run(board, ["-m", "device_agent", "keys", "trust", own.public, own.name], tmp_path)
    assert trusted.stdout.startswith(f"trusted  {own.public}  {own.name}, since 20"), trusted.stderr
    done = run(board, load, tmp_path)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["absent"] == ["numpy", "torch", "tvm", "onnx"]
    np.testing.assert_allclose(answer["scores"], case.outputs[0][0], rtol=1e-3, atol=1e-3)


def test_the_host_without_its_extra_says_what_to_install(board: Path, tmp_path: Path) -> None:
    done = run(board, ["-m", "sdk.cli", "--help"], tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "pip install 'edgetlm[host]'" in done.stderr


def test_the_agents_command_is_there(board: Path, tmp_path: Path) -> None:
    done = run(board, ["-m", "device_agent", "--help"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "serve" in done.stdout
