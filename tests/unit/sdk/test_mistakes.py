"""Words that the command line does not have: what somebody meant by them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from sdk.cli import mistakes
from sdk.cli.main import build_app, main
from sdk.cli.project import NAME


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("deploy net.onnx --target pi5", "No such option: --target: write --device (sdk deploy --help"),
        ("compile net.onnx --device pi5", "No such option: --device: write --target (sdk compile --help"),
        ("deploy net.onnx --int8", "write --quantize int8 (sdk"),
        ("deploy net.onnx --batch-size 1", "write --shape batch=1 (sdk"),
        ("run net --save out.npz", "write --output (sdk"),
        # Names that look alike are shown where nothing is known.
        ("deploy net.onnx --devise local", "--devise (Possible options: --device, --engine) (sdk deploy"),
        ("deploy local net.onnx", "(net.onnx): sdk deploy takes MODEL alone, and a device as --device NAME"),
        ("bundles pi5", "(pi5): sdk bundles takes options alone, and a device as --device NAME (sdk"),
        ("targets pi5", "(pi5): sdk targets takes options alone (sdk targets --help"),
        ("install net", "'install'. Write sdk deploy (sdk --help"),
        ("devices check pi5", "'check'. Write sdk devices doctor (sdk devices --help"),
        ("devices nonsense", "No such command 'nonsense'. (sdk devices --help"),
        ("deploy hf://", "hf: names no model: write hf://ORG/MODEL"),
        ("deploy https://host/a/net.onnx", "https://host/a/net.onnx is an address, which is not fetched"),
        ("run net --input .", ". is a folder: give a .npz or .npy file"),
        ("run net --input x=x.npy", "x=x.npy: no such file: give a .npz file with the arrays by name"),
        ("deploy net.onnx --report page.pdf", "--report page.pdf: a report is HTML: name it page.html"),
        (f"deploy net.onnx --{'a' * 300}", "No such option: --aaa"),
        ("explain net -o page.JSON", "--output page.JSON: a report is HTML: name it page.html"),
    ],
)
def test_what_was_meant_is_in_the_line(
    line: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(line.split()) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1
    assert words in error


def test_a_mistake_in_a_project_file_is_of_that_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for text, words in (
        ("model = ", f"{NAME} cannot be read"),
        ("modle = 'net.onnx'", f"{NAME}: no key 'modle', did you mean 'model'?"),
        ("model = 3", f"{NAME}: model: give a text, not 3"),
        ("[gates]\nmax-latency = 5", "[gates] no key 'max-latency', did you mean 'max-latency-ms'?"),
        ("[gates]\nmax-latency-ms = 'fast'", "[gates] max-latency-ms: give a number, not 'fast'"),
    ):
        (tmp_path / NAME).write_text(text)
        assert main(["deploy"]) == 2
        assert words in capsys.readouterr().err, text


def test_help_and_version_are_commands_too(capsys: pytest.CaptureFixture[str]) -> None:
    for words, wanted in (
        (["help", "deploy"], ["deploy", "-h"]),
        (["help"], ["-h"]),
        (["version"], ["--version"]),
    ):
        assert main(words) == 0
        shown = capsys.readouterr().out
        assert main(wanted) == 0
        assert shown == capsys.readouterr().out


def test_every_answer_is_an_option_or_command_that_there_is() -> None:
    root: Any = typer.main.get_command(build_app())
    options = {
        name
        for command in _commands(root)
        for parameter in command.params
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    for typed, answers in mistakes._OPTIONS.items():
        assert {one.partition(" ")[0] for one in answers} <= options, typed
    for path, meant in mistakes._COMMANDS.items():
        for typed, answer in meant.items():
            command = root
            for word in [*path.split()[1:], *answer.partition(" MODEL")[0].split()]:
                command = command.commands[word]
            group = root
            for word in path.split()[1:]:
                group = group.commands[word]
            assert typed not in group.commands


def _commands(command: Any) -> Iterator[Any]:
    yield command
    for one in getattr(command, "commands", {}).values():
        yield from _commands(one)


def test_arrays_without_names_say_the_names(tmp_path: Path) -> None:
    from host.errors import ShapeError
    from host.model import Signature, TensorSpec
    from sdk.model import Model

    model = Model.__new__(Model)
    inputs = (TensorSpec("x", (1, 3), "float32"), TensorSpec("mask", (1,), "int64"))
    object.__setattr__(model, "signature", Signature(inputs, ()))
    with pytest.raises(ShapeError, match="inputs given: 1, the model takes 2: x, mask: give them by name"):
        model.run(np.ones((1, 3), np.float32))
