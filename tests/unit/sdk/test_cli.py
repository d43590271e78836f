from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sdk.cli.main as command_line
import targets
from host.errors import DeviceError, UserError
from host.model import Signature, TensorSpec
from host.options import DeployOptions
from sdk.cli.forms import parse_lengths, parse_shapes
from sdk.cli.main import main
from sdk.cli.terminal import ConsoleProgress
from sdk.files.arrays import read_arrays
from sdk.request import check_tuning
from targets.files import board_files, load_board

# What must not be imported for an answer that needs no compiler.
_HEAVY = (
    *("tvm", "torch", "onnx", "onnxruntime", "ai_edge_litert", "transformers", "scipy", "pandas"),
    *("sqlalchemy", "jinja2"),
)
# What must not be imported for an answer of this host alone either.
_HEAVY_WITHOUT_DEVICE = (*_HEAVY, "numpy", "cryptography")
# What must not be imported for plain lines, without progress or the tables of a terminal.
_OF_TERMINALS = ("rich.console", "rich.progress")


def _heavy_modules(line: str, names: tuple[str, ...], folder: Path) -> str:
    """Those of the packages that a command has imported when it ends, and its exit code."""
    program = f"""
import sys
from sdk.cli.main import main
code = main({line.split()!r})
print([name for name in {names!r} if name in sys.modules], code)
"""
    homes = {f"XDG_{kind}_HOME": str(folder / kind) for kind in ("CONFIG", "DATA", "CACHE", "STATE")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=os.environ | homes,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()[-1]


_PLAIN_ANSWERS = (
    ("--help", 0),
    ("deploy --help", 0),
    ("targets", 0),
    ("nonsense", 2),
    ("deploy", 2),
    ("deploy net.onnx --threads y", 2),
    ("run absent --input absent.npz", 2),
)
_ANSWERS_WITHOUT_DEVICE = (
    ("deploy net.onnx --objective fun", 2),
    ("deploy net.onnx --device absent", 2),
    ("deploy net.onnx --device absent,local", 2),
    ("deploy absent.onnx", 2),
    ("deploy text.txt", 2),
    ("deploy net.onnx --bundle text.txt", 2),
    ("deploy net.onnx --bundle /dev/null/bundle", 2),
    ("compile net.onnx --target raspberry_pi_5 -o text.txt", 2),
    ("tune absent.onnx --trials 1", 2),
    ("tune net.onnx", 2),
    ("compile absent.onnx -o out", 2),
    ("profile absent.onnx", 2),
    ("profile net.onnx --device absent", 2),
)
_LISTS_OF_DEVICES = (
    ("keys show", 0),
    ("rollback absent", 1),
    ("devices list", 0),
    ("bundles", 0),
    ("keys list", 0),
    ("tlm card", 0),
)
_ANSWERS_WITHOUT_COMPILER = (
    ("devices calibrate absent", 2),
    ("run absent", 2),
    ("report compare absent.json absent.json", 2),
    ("compile net.onnx -o out --target absent", 2),
    ("records list", 2),
)
# Its packages are those of a database, and neither its drivers for servers nor NumPy.
_ANSWERS_OF_RECORDS = (("records list --records records.sqlite", 0),)
_HEAVY_WITHOUT_RECORDS = (*(name for name in _HEAVY_WITHOUT_DEVICE if name != "sqlalchemy"), "psycopg")


@pytest.mark.parametrize(
    ("line", "code", "heavy"),
    [
        *((*answer, (*_HEAVY_WITHOUT_DEVICE, *_OF_TERMINALS)) for answer in _PLAIN_ANSWERS),
        *((*answer, _HEAVY_WITHOUT_DEVICE) for answer in _ANSWERS_WITHOUT_DEVICE),
        *((*answer, (*_HEAVY, "numpy", *_OF_TERMINALS)) for answer in _LISTS_OF_DEVICES),
        *((*answer, _HEAVY) for answer in _ANSWERS_WITHOUT_COMPILER),
        *((*answer, _HEAVY_WITHOUT_RECORDS) for answer in _ANSWERS_OF_RECORDS),
    ],
)
def test_a_light_answer_imports_no_heavy_package(
    line: str, code: int, heavy: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "net.onnx").write_bytes(b"\x08")
    (tmp_path / "text.txt").write_text("text")
    (tmp_path / "records.sqlite").touch()
    assert _heavy_modules(line, heavy, tmp_path) == f"[] {code}"


def test_a_file_that_is_named_like_an_option_is_told_as_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-net.onnx").touch()
    assert main(["deploy", "-net.onnx"]) == 2
    assert ": for the file of this name write ./-net.onnx (sdk deploy --help" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (
            ["deploy"],
            "Missing argument 'model'. Give a model file, or name one in edgetlm.toml (sdk deploy --help",
        ),
        (["deploy", "absent.onnx", "--peer", "fun"], "no peer 'fun': use onnxruntime, litert"),
        (["deploy", "absent.onnx", "--peer", "openvino,fun"], "no peer 'fun': use onnxruntime, litert"),
        (["deploy", "absent.onnx", "--json", "."], ". is a folder: name a file in it with --json"),
        (["deploy", "absent.onnx", "--trace", "."], ". is a folder: name a file in it with --trace"),
        (["deploy", "absent.onnx", "--report", "."], ". is a folder: name a file in it with --report"),
        (
            ["deploy", "absent.onnx", "--json", "/dev/null"],
            "/dev/null is no plain file: name one with --json",
        ),
        (["tune", "absent.onnx", "--report", "/dev/null/a/b.html"], "/dev/null is no folder: name another"),
        (
            ["run", "absent", "--input", "absent.npz", "-o", "."],
            ". is a folder: name a file in it with --out",
        ),
        (["explain", "absent", "--task", "a", "-o", "."], ". is a folder: name a file in it with --output"),
        (
            ["--install-completion", "zsh"],
            "--install-completion takes no name of a shell: it is for the shell",
        ),
        (["--show-completion", "zsh"], "Start that shell, and type sdk --show-completion there"),
        (["explain", "absent", "--task", "a"], "sdk deploy or sdk compile makes a bundle of a model file"),
        (["deploy", "net.onnx", "--threads", "many"], "--threads"),
        (["deploy", "net.onnx", "--nonsense"], "--nonsense"),
        (["deploy", "absent.onnx"], "absent.onnx: no such file"),
        (["deploy", "n" * 300 + ".onnx"], "File name too long: give a path that this user may read"),
        (["deploy", "."], "a folder without config.json"),
        (
            ["deploy", "absent.onnx", "--backend", "gcc"],
            "no backend 'gcc': use auto, tvm",
        ),
        (["deploy", "absent.onnx", "--objective", "fun"], "no objective 'fun'"),
        (["tune", "absent.onnx", "--objective", "fun", "--trials", "1"], "no objective 'fun'"),
        (["deploy", "absent.onnx", "--power-cap", "-1"], "--power-cap -1: give watts above 0"),
        (["deploy", "absent.onnx", "--power-cap", "much"], "--power-cap"),
        (["report", "compare", "absent.json", "absent.json"], "absent.json: no such file"),
        (["deploy", "absent.onnx", "--trials", "-1"], "--trials -1"),
        (["deploy", "absent.onnx", "--threads", "-1"], "--threads -1"),
        (["deploy", "absent.onnx", "--shape", "x=1,b"], "--shape x=1,b: write it as NAME=1,128"),
        (["deploy", "absent.onnx", "--value", "x=1,b"], "--value x=1,b: write it as INPUT=640,480"),
        (["deploy", "absent.onnx", "--value", "5"], "--value 5: write it as INPUT=640,480"),
        (["deploy", "absent.onnx", "--value", "x=1", "--value", "x=2"], "'x' was given already"),
        (["deploy", "absent.tflite", "--value", "x=1"], "absent.tflite: no such file"),
        (["compile", "absent.onnx", "-o", "out"], "absent.onnx: no such file"),
        (["profile", "absent.onnx"], "absent.onnx: no such file"),
        (["profile", "absent.onnx", "--device", "a,b"], "--device a,b: sdk profile measures on one device"),
        (["run", "absent", "--input", "absent.npz"], "absent.npz: no such file"),
        (["run", "absent"], "absent"),
        (["devices", "calibrate", "absent"], "no device is called 'absent'"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    arguments: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1
    assert printed.err.startswith("error: ")
    assert words in printed.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("method", "needs"),
    [("tlm", r"PyTorch: .*edgetlm\[torch\]"), ("metaschedule", r"XGBoost: .*edgetlm\[bench\]")],
)
def test_a_method_whose_package_is_missing_is_refused_before_anything_is_read(
    method: str, needs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = DeployOptions(Path("net.onnx"), method=method, trials=4)
    check_tuning(object(), options)
    monkeypatch.setattr("sdk.request.find_spec", lambda name: None)
    with pytest.raises(UserError, match=f"--method {method} needs {needs}'$"):
        check_tuning(object(), options)


def test_verbose_adds_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["deploy", "absent.onnx", "--verbose"]) == 2
    printed = capsys.readouterr().err
    assert "Traceback" in printed
    assert printed.splitlines()[-1].startswith("error: ")


def test_an_array_file_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.npz").write_text("text")
    assert main(["run", str(tmp_path), "--input", str(tmp_path / "x.npz")]) == 2
    assert "x.npz is no whole .npz or .npy file" in capsys.readouterr().err


class _Loaded(contextlib.AbstractContextManager):
    """A model as `api.load` returns it."""

    warning = ""

    def __init__(self, *inputs: TensorSpec) -> None:
        self.signature = Signature(inputs, (TensorSpec("y", (2,), "float32"),))

    def __exit__(self, *_: object) -> None:
        """Nothing to end."""

    def run(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"y": np.array([1.5, len(arrays)], np.float32)}


def test_a_model_without_inputs_runs_without_any(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sdk.api.load", lambda *_, **__: _Loaded())
    assert main(["run", "net"]) == 0
    assert capsys.readouterr().out == "y  float32[2]  [1.5, 0]\n"
    inputs = TensorSpec("x", (1, 3), "float32"), TensorSpec("mask", (1,), "int64")
    monkeypatch.setattr("sdk.api.load", lambda *_, **__: _Loaded(*inputs))
    assert main(["run", "net"]) == 2
    error = "error: net takes x float32[1, 3], mask int64[1]: give the arrays with --input FILE.npz\n"
    assert capsys.readouterr().err == error


def test_arrays_are_read_from_npy_and_npz(tmp_path: Path) -> None:
    array = np.arange(6, dtype="float32").reshape(2, 3)
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "a.npz", image=array)
    bare, named = read_arrays(tmp_path / "a.npy"), read_arrays(tmp_path / "a.npz")
    assert isinstance(bare, np.ndarray) and isinstance(named, dict)
    assert bare.tolist() == named["image"].tolist() == array.tolist()


def test_a_stage_does_not_keep_the_total_of_the_one_before() -> None:
    progress = ConsoleProgress(io.StringIO())
    progress.stage("tune")
    progress.advance(90, 90)
    progress.stage("verify")
    [task] = progress._bar.tasks
    assert (task.completed, task.total) == (0, None)


def test_shapes_are_read_by_name() -> None:
    assert parse_shapes(["x=1,128", "a=b:0=2"]) == {"x": (1, 128), "a=b:0": (2,)}
    assert parse_shapes(None) == {}
    for text in ("x", "=1", "x=", "x=0", "x=-1", "x=1,,2", "x=1.5"):
        with pytest.raises(UserError, match="write it as"):
            parse_shapes([text])
    with pytest.raises(UserError, match="already"):
        parse_shapes(["x=1", "x=2"])


def test_a_range_is_read_as_its_ends() -> None:
    assert parse_shapes(["seq=1..512", "ids=1,2..8"]) == {"seq": ((1, 512),), "ids": (1, (2, 8))}
    with pytest.raises(UserError, match="from the lesser to the greater"):
        parse_shapes(["seq=5..2"])
    for text in ("seq=0..4", "seq=..4", "seq=1..", "seq=1..x"):
        with pytest.raises(UserError, match="write it as"):
            parse_shapes([text])
    assert parse_lengths("128,16,16") == (16, 128)
    with pytest.raises(UserError, match="--lengths 0: write it as"):
        parse_lengths("0")


def test_targets_and_their_vectors(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["targets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("x86_64-v4") and "512-bit" in line for line in lines)
    assert lines[0].startswith("local")


def test_the_list_of_targets_reads_each_file_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []
    load = load_board

    def counted(path: Path) -> Any:
        read.append(path)
        return load(path)

    monkeypatch.setattr(targets, "load_board", counted)
    assert main(["targets"]) == 0
    assert sorted(read) == sorted(board_files().values())
    listed = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line[0] != " "}
    assert listed == {"local", *(name for name, one in targets.declared().items() if targets.board_for(one))}


def test_a_working_folder_that_is_gone_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(["compile", str(tmp_path / "net.onnx"), "--output", "net"]) == 1
    said = "error: the folder that this command was started in is gone: change to another one and run again\n"
    assert capsys.readouterr().err == said


def test_json_is_written_whole(tmp_path: Path) -> None:
    from sdk.cli.printing import write_json

    write_json(tmp_path / "deep" / "figures.json", {"a": 1})
    assert json.loads((tmp_path / "deep" / "figures.json").read_text()) == {"a": 1}
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["figures.json"]


def test_an_error_of_cleaning_up_after_an_interruption_is_an_interruption(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The interruption may come within an answer of the agent, which the cleanup then cannot read."""

    def run(*arguments: object, **options: object) -> None:
        try:
            raise command_line.Interrupted
        finally:
            try:
                raise EOFError("half an answer")
            except EOFError as error:
                raise DeviceError("local: the device agent went away; connect again") from error

    monkeypatch.setattr(command_line, "build_app", lambda: run)
    assert command_line.main(["env"]) == 130
    assert capsys.readouterr().err.strip() == "error: interrupted"
