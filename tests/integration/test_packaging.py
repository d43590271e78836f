"""One wheel; the agent runs from it with nothing but the TVM runtime beside it."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator, Sequence
from importlib.metadata import distribution, distributions
from pathlib import Path

import numpy as np
import pytest

import sdk
from benchmarks.first_model import built_wheel
from host import bundle
from host.keys import host_key
from tests.integration import small_models

ROOT = Path(sdk.__file__).parents[1]
PACKAGES = ("sdk", "research", "host", "targets", "device_agent", "benchmarks")
# The benchmarks that need nothing of a checkout.
BENCHMARKS = {"__init__.py", "result_file.py", "operators", "e2e"}
LEGAL = ("LICENSE", "NOTICE")
WEIGHTS = [
    f"host/tlm/weights/{name}"
    for name in ("weights.safetensors", "model.json", "README.md", "replay.jsonl.gz")
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built without anything from an index."""
    return built_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of the wheel as pip installs them, without any other."""
    site = tmp_path_factory.mktemp("site") / "packages"
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
    return site


@pytest.fixture(scope="module")
def board(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and its base dependency alone; returns its interpreter."""
    return environment_of(installed, tmp_path_factory.mktemp("board"))


def environment_of(installed: Path, folder: Path) -> Path:
    """A new environment with the wheel and its base dependency; returns its interpreter."""
    venv.create(folder, with_pip=False, symlinks=True)
    site = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    shutil.copytree(installed, site, dirs_exist_ok=True)
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
    assert {name.rpartition("/")[2] for name in names if ".dist-info/licenses/" in name} == set(LEGAL)
    packages = {name.split("/")[0] for name in names if not name.split("/")[0].endswith(".dist-info")}
    assert packages == set(PACKAGES)
    assert {name.split("/")[1] for name in names if name.startswith("benchmarks/")} == BENCHMARKS
    data_files = (
        "sdk/py.typed",
        "host/py.typed",
        "sdk/report/templates/report.html.j2",
        "research/pretraining/weights_card.md.j2",
    )
    for data in (*data_files, *WEIGHTS):
        assert data in names
    # An installed host builds the native executor out of these.
    sources = [path for path in (ROOT / "device_agent" / "native").rglob("*") if path.is_file()]
    assert sources and {path.relative_to(ROOT).as_posix() for path in sources} <= set(names)
    assert "sdk = sdk.cli.entry:command" in entry_points
    assert "device-agent = device_agent.__main__:main" in entry_points


def test_no_module_of_the_wheel_imports_one_that_is_not_in_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        sources = {name: archive.read(name) for name in archive.namelist() if name.endswith(".py")}
    modules = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in sources}
    tops = {*PACKAGES, "tests", "scripts"}
    missing = set()
    for name, source in sources.items():
        for node in ast.walk(ast.parse(source)):
            imported = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            imported += [one.name for one in node.names] if isinstance(node, ast.Import) else []
            missing |= {(name, m) for m in imported if m.split(".")[0] in tops and m not in modules}
    assert not missing and "benchmarks.operators.__main__" in modules


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


def _link_extra(python: Path, extra: str) -> set[str]:
    """Give an environment what pip would install for an extra of the wheel; returns the packages' names."""
    [site] = python.parents[1].glob("lib/python*/site-packages")
    [own] = distributions(name="edgetlm", path=[str(site)])
    wanted = [line for line in own.requires or () if line.endswith(f'extra == "{extra}"')]
    names = {re.split(r"[=;\[]", line)[0].strip() for line in wanted}
    for name in names:
        found = distribution(name)
        for top in {file.parts[0] for file in found.files or () if file.parts[0] != ".."}:
            if not (site / top).exists():
                (site / top).symlink_to(str(found.locate_file(top)))
    return names


def test_a_board_that_has_pip_runs_bundles_by_its_extra(
    installed: Path, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    python = environment_of(installed, tmp_path_factory.mktemp("pip"))
    assert _link_extra(python, "board") == {"apache-tvm", "numpy"}
    model = small_models.convnet(tmp_path / "net.onnx")
    sdk.compile(model, output=tmp_path / "bundle", threads=1, backend="tvm")
    [case, *_] = bundle.golden_cases(tmp_path / "bundle", bundle.load(tmp_path / "bundle"))
    np.save(tmp_path / "image.npy", case.inputs[0])
    program = """
import numpy
from device_agent.runtime import load
numpy.save("scores.npy", load("bundle").run({"image": numpy.load("image.npy")})["scores"])
"""
    own = host_key()
    for words in (["-m", "device_agent", "keys", "trust", own.public, own.name], ["-c", program]):
        done = subprocess.run(
            [str(python), "-I", *words],
            capture_output=True,
            text=True,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "scores.npy"), case.outputs[0], rtol=1e-3, atol=1e-3)


def test_the_host_without_its_extra_says_what_to_install(board: Path, tmp_path: Path) -> None:
    done = run(board, ["-m", "sdk.cli", "--help"], tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "pip install 'edgetlm[host]'" in done.stderr


# What `edgetlm[cpu]` does without, and what only that brings.
WITHOUT = ("torch", "torchgen", "functorch", "transformers", "safetensors", "tokenizers", "sympy", "networkx")


@pytest.fixture(scope="module")
def host_without_torch(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and the packages of `edgetlm[cpu]`; returns its interpreter."""
    python = environment_of(installed, tmp_path_factory.mktemp("host"))
    [site] = python.parents[1].glob("lib/python*/site-packages")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        name = entry.name.lower().replace("-", "_")
        ours = name.startswith(("edgetlm", "__editable__", "_edgetlm", *PACKAGES)) or entry.suffix == ".pth"
        if not ours and not name.startswith(WITHOUT) and not (site / entry.name).exists():
            (site / entry.name).symlink_to(entry)
    return python


def test_a_host_without_torch_deploys_and_tunes_and_says_what_needs_it(
    host_without_torch: Path, tmp_path: Path
) -> None:
    small_models.convnet(tmp_path / "net.onnx")
    python = str(host_without_torch)
    # The packages are links: the worker that reads models may read where they are as it may libraries.
    packages = sysconfig.get_path("purelib")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LD_LIBRARY_PATH": packages}

    def sdk_says(*arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [python, "-I", "-m", "sdk.cli", *arguments],
            capture_output=True,
            text=True,
            env=environment,
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    probe = "import importlib.util as u; print([n for n in ('torch', 'transformers') if u.find_spec(n)])"
    assert subprocess.check_output([python, "-I", "-c", probe], text=True, env=environment) == "[]\n"
    said = sdk_says("deploy", "net.onnx", "--threads", "1", "--backend", "tvm")
    assert "tvm, verified, installed and active on local" in said
    said = sdk_says("tune", "net.onnx", "--threads", "1", "--trials", "2")
    assert "PyTorch is not installed" in said and "pip install 'edgetlm[torch]'" in said
    assert "2 trials" in said
    with zipfile.ZipFile(tmp_path / "net.pt2", "w") as archive:
        archive.writestr("net/models/model.json", "{}")
    said = sdk_says("deploy", "net.pt2", code=1)
    [error] = [line for line in said.splitlines() if line.startswith("error: ")]
    assert error == "error: net.pt2: PyTorch is not installed (no module torch): pip install 'edgetlm[torch]'"


@contextlib.contextmanager
def of_another_version(python: Path, package: str, module: str, version: str) -> Iterator[None]:
    """A release of a package without the names that are needed, in place of the installed one."""
    [site] = python.parents[1].glob("lib/python*/site-packages")
    [facts] = site.glob(f"{package.replace('-', '_')}-*.dist-info")
    links = {path: path.readlink() for path in (site / module, facts)}
    old = site / f"{package.replace('-', '_')}-{version}.dist-info"
    for path in links:
        path.unlink()
    try:
        for folder, name, text in (
            (site / module, "__init__.py", f"__version__ = {version!r}\n"),
            (old, "METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"),
            (old, "top_level.txt", f"{module}\n"),
        ):
            folder.mkdir(exist_ok=True)
            (folder / name).write_text(text)
        yield
    finally:
        shutil.rmtree(site / module)
        shutil.rmtree(old)
        for path, target in links.items():
            path.symlink_to(target)


@pytest.mark.parametrize(
    ("package", "module", "version"),
    [
        # The command itself, what it computes with, the compiler, and what only the worker of files imports.
        ("typer", "typer", "0.4.0"),
        ("numpy", "numpy", "1.21.0"),
        ("apache-tvm", "tvm", "0.14.0"),
        ("onnx", "onnx", "1.12.0"),
    ],
)
def test_a_package_of_another_version_is_one_line(
    host_without_torch: Path, tmp_path: Path, package: str, module: str, version: str
) -> None:
    small_models.convnet(tmp_path / "net.onnx")
    packages = sysconfig.get_path("purelib")
    with of_another_version(host_without_torch, package, module, version):
        done = subprocess.run(
            [str(host_without_torch), "-I", "-m", "sdk.cli", "compile", "net.onnx", "-o", "net"],
            capture_output=True,
            text=True,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LD_LIBRARY_PATH": packages},
            cwd=tmp_path,
            check=False,
        )
    assert done.returncode == 1, done.stdout + done.stderr
    [error] = done.stderr.splitlines()
    wanted = distribution(package).version
    assert error.startswith(
        f"error: {package} {version} is installed and does not fit, edgetlm needs {package} {wanted}: "
        f"pip install '{package}=={wanted}' ("
    )
    assert module in error.rpartition("(")[2]


def test_the_agents_command_is_there(board: Path, tmp_path: Path) -> None:
    done = run(board, ["-m", "device_agent", "--help"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "serve" in done.stdout
