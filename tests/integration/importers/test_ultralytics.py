"""Checkpoints of Ultralytics: exported by the environment's package, in a worker that confines the pickle.

The package is a fake one; docs/ultralytics.md says what was seen with theirs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest

import host.importers.ultralytics.checkpoint as parent
from host.errors import EngineError, ModelFileError, ShapeError
from host.importers.ultralytics.checkpoint import exported_checkpoint
from host.model_file import detect_format
from host.sandbox import Worker
from tests.integration.importers.fake_ultralytics import checkpoint, environment, packages_of

ROOT = Path(__file__).resolve().parents[3]
# What the code of a pickle tries; the results are kept in the package, which exports them.
ATTEMPTS = """
import os, socket, ultralytics
from pathlib import Path
def attempt(name, action):
    try:
        action()
        ultralytics.attempts[name] = "done"
    except OSError as error:
        ultralytics.attempts[name] = type(error).__name__
attempt("read a secret", lambda: Path({secret!r}).read_text())
attempt("write elsewhere", lambda: Path({mark!r}).write_text("x"))
attempt("change the checkpoint", lambda: Path({model!r}).write_text("x"))
attempt("use a network", lambda: socket.create_connection(("127.0.0.1", 9), 1))
attempt("signal to the parent", lambda: os.kill(os.getppid(), 0))
attempt("write in its scratch folder", lambda: Path("own").write_text("x"))
ultralytics.attempts["home"] = os.environ["HOME"]
ultralytics.attempts["token"] = os.environ.get("MY_TOKEN")
"""


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("environment") / "own")


@pytest.fixture(autouse=True)
def own_environment(interpreter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process and its workers run in the environment that has the package."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "executable", str(interpreter))
    monkeypatch.syspath_prepend(packages_of(interpreter.parents[1]))


def shape_of(path: Path) -> list[int]:
    (only,) = onnx.load(path).graph.input
    return [size.dim_value for size in only.type.tensor_type.shape.dim]


def attempts_of(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(onnx.load(path).metadata_props[0].value)
    return found


def test_a_checkpoint_is_exported_once_and_again_for_other_sizes(tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "yolo.pt")
    assert detect_format(path) == "ultralytics"
    lines: list[str] = []
    first = exported_checkpoint(path, {}, lines.append)
    assert first.name == "yolo.onnx" and shape_of(first) == [1, 3, 64, 64]
    code, sizes = (line for line in lines if "fewer guards" not in line)
    assert "yolo.pt is a pickle: its code runs in the export's process, which has no network" in code
    assert "yolo is exported by Ultralytics 8.0.0: images [1, 3, 64, 64]; --shape height=N" in sizes
    written = first.stat().st_mtime_ns
    assert exported_checkpoint(path, {}, lines.append) == first and first.stat().st_mtime_ns == written
    assert len(lines) == 2
    other = exported_checkpoint(path, {"height": (96,), "batch": (2,)}, name="mine")
    assert other.name == "mine.onnx" and shape_of(other) == [2, 3, 96, 64]
    assert shape_of(exported_checkpoint(path, {"images": (1, 3, 32, 64)})) == [1, 3, 32, 64]


def test_code_of_the_pickle_reaches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "secret")
    (tmp_path / "secret").write_text("secret")
    names = {"secret": "secret", "mark": "mark", "model": "yolo.pt"}
    code = ATTEMPTS.format(**{key: str(tmp_path / name) for key, name in names.items()})
    path = checkpoint(tmp_path / "yolo.pt", code)
    before = path.read_bytes()
    found = attempts_of(exported_checkpoint(path, {}))
    assert found.pop("home") != str(Path.home()) and found.pop("token") is None
    assert {name for name, result in found.items() if result == "done"} == {"write in its scratch folder"}
    assert len(found) == 6
    assert not (tmp_path / "mark").exists() and path.read_bytes() == before


def test_the_pickle_is_not_read_where_the_kernel_does_not_confine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    class Unconfined(Worker):
        def call(self, function: str, *given: Any) -> Any:
            asked.append(function)
            answer = super().call(function, *given)
            self.missing = ("the kernel offers no Landlock",)
            return answer

    monkeypatch.setattr(parent, "Worker", Unconfined)
    with pytest.raises(ModelFileError, match=r"cannot confine it \(the kernel offers no Landlock\): if you"):
        exported_checkpoint(checkpoint(tmp_path / "yolo.pt"), {})
    assert asked == ["host.importers.ultralytics.child:load_package"]


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ({"images": (1, 3, 50, 64)}, "rounds images=1,3,50,64 to 1,3,64,64: give --shape images=1,3,64,64"),
        ({"size": (64,)}, "--shape names 'size', but the inputs are images .* batch, height, width"),
        ({"images": (1, 1, 64, 64)}, "the model fixes images=batch,3,height,width"),
    ],
)
def test_sizes_that_do_not_fit_are_one_line(
    shapes: dict[str, tuple[int, ...]], words: str, tmp_path: Path
) -> None:
    with pytest.raises(ShapeError, match=words) as caught:
        exported_checkpoint(checkpoint(tmp_path / "yolo.pt"), shapes)
    assert "\n" not in str(caught.value)


# Code that has a link, another file and another answer come back.
LINK = "import pathlib; pathlib.Path.rename = lambda self, target: pathlib.Path(target).symlink_to({place!r})"
OTHER = (
    "import pathlib; pathlib.Path.rename = lambda self, target: pathlib.Path('checkpoint.pt').replace(target)"
)
ANSWER = "import json; json.JSONEncoder.encode = lambda self, value: '{\"value\": [1, 3, 64, [64]]}'"


@pytest.mark.parametrize(
    ("code", "fields", "words"),
    [
        ("", {"refused": True}, r"does not export it \(AssertionError: no such task.*yolo export model=yolo"),
        ("raise ImportError('no module models')", {}, r"does not export it \(ImportError: no module models"),
        ("import os; os._exit(1)", {}, "the process that read it ended with code 1"),
        (LINK.format(place="/etc/passwd"), {}, "yolo.onnx: its export left no file"),
        (LINK.format(place="/nowhere"), {}, "yolo.onnx: its export left no file"),
        (OTHER, {}, "what its export left is no ONNX file: export it by hand"),
        (ANSWER, {}, "the answer of the export is damaged: export it by hand"),
    ],
)
def test_an_export_that_fails_is_one_line_and_leaves_nothing(
    code: str, fields: dict[str, object], words: str, tmp_path: Path
) -> None:
    path = checkpoint(tmp_path / "yolo.pt", code, **fields)
    with pytest.raises(ModelFileError, match=words) as caught:
        exported_checkpoint(path, {})
    assert "\n" not in str(caught.value)
    assert not [one for one in (tmp_path / "cache").rglob("*") if one.is_file() or one.is_symlink()]


def test_a_package_that_cannot_be_imported_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = environment(tmp_path / "broken", "raise ImportError('libGL.so.1: no such file')")
    monkeypatch.setattr(sys, "executable", str(broken))
    monkeypatch.syspath_prepend(packages_of(broken.parents[1]))
    with pytest.raises(EngineError, match=r"ultralytics cannot be imported \(libGL.so.1: no such file\)"):
        exported_checkpoint(checkpoint(tmp_path / "yolo.pt"), {})


def test_the_command_line_compiles_a_checkpoint(interpreter: Path, tmp_path: Path) -> None:
    command = [str(interpreter), "-m", "sdk.cli", "compile", str(checkpoint(tmp_path / "yolo.pt"))]
    command += ["--shape", "height=32", "--threads", "1", "-o", str(tmp_path / "bundle")]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "note: yolo.pt is a pickle: its code runs in the export's process" in done.stdout
    manifest = json.loads((tmp_path / "bundle" / "manifest.json").read_text())
    assert manifest["name"] == "yolo"
    assert [one["shape"] for one in manifest["signature"]["inputs"]] == [[1, 3, 32, 64]]
