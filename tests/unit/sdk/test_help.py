from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from host.deploy import DeployResult
from host.devices.notes import note
from host.options import DeployOptions, settings_of
from sdk import api
from sdk.cli.completion import joined
from sdk.cli.main import build_app, main
from sdk.cli.rows import write_list
from tests.unit.compare.samples import result

_WIDTH = 80
_WORD = re.compile(r"\S+")


def _commands(command: Any, context: Any) -> Iterator[tuple[Any, Any]]:
    yield command, context
    for name, child in getattr(command, "commands", {}).items():
        yield from _commands(child, child.context_class(child, info_name=name, parent=context))


def _all() -> list[tuple[Any, Any]]:
    root = typer.main.get_command(build_app())
    return list(_commands(root, root.context_class(root, info_name="sdk", terminal_width=_WIDTH)))


def _texts(command: Any, context: Any) -> Iterator[str]:
    """The texts of a command as they were written."""
    yield command.help or ""
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            yield from record


@pytest.mark.parametrize(
    ("command", "context"), [pytest.param(*one, id=one[1].command_path) for one in _all()]
)
def test_help_fits_80_columns_with_every_word_whole(command: Any, context: Any) -> None:
    lines = command.get_help(context).splitlines()
    assert [line for line in lines if len(line) > _WIDTH] == []
    shown = {word for line in lines for word in _WORD.findall(line)}
    written = {word for text in _texts(command, context) for word in _WORD.findall(text)}
    assert written <= shown


def test_every_command_has_an_example_of_its_own_with_options_that_it_has() -> None:
    for command, context in _all():
        if hasattr(command, "commands"):
            continue
        known = {name for parameter in command.params for name in parameter.opts}
        for example in re.split(r"Examples?:\n", command.get_help(context))[1].strip().splitlines():
            assert example.split()[: len(context.command_path.split())] == context.command_path.split()
            assert {word for word in example.split() if word.startswith("-")} <= known, example


def test_the_options_of_a_deployment_are_grouped() -> None:
    [(command, context)] = [one for one in _all() if one[1].command_path == "sdk deploy"]
    text = command.get_help(context)
    titles = re.findall(r"^(\w+):$", text, re.MULTILINE)
    groups = [one.metadata["setting"].group.capitalize() for one in settings_of(DeployOptions, "deploy")]
    assert titles == ["Arguments", *dict.fromkeys(groups), "Options", "Examples"]
    assert text.index("\nTuning:") < text.index("--budget") < text.index("\nModel:")


@pytest.mark.parametrize("words", [[], ["devices"], ["records"]])
def test_a_group_alone_shows_its_help_as_it_is(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    alone = capsys.readouterr()
    assert main([*words, "-h"]) == 0
    assert alone.out == capsys.readouterr().out
    assert "\nCommands:\n" in alone.out
    assert alone.err == ""


def test_a_mistake_names_the_help_of_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "list", "--bogus"]) == 2
    assert "(sdk devices list --help shows what there is)" in capsys.readouterr().err
    assert main(["profile", "net.onnx", "--loadgen"]) == 2
    assert "(sdk profile --help shows what there is)" in capsys.readouterr().err
    assert main(["records", "list", "--records"]) == 2
    assert "(sdk records list --help shows what there is)" in capsys.readouterr().err


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    import sdk

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"edgetlm {sdk.__version__}\n"
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", sdk.__version__)


def _completed(line: str, folder: str = ".") -> list[str]:
    return _completed_words(line.split(" "), folder)


def _completed_words(words: list[str], folder: str) -> list[str]:
    """What is offered for the last of bash's words."""
    environment = os.environ | {
        "_SDK_COMPLETE": "complete_bash",
        "COMP_WORDS": "\n".join(words),
        "COMP_CWORD": str(len(words) - 1),
        "XDG_CONFIG_HOME": folder,
        "XDG_DATA_HOME": folder,
    }
    done = subprocess.run(
        [sys.executable, "-m", "sdk.cli"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_a_shell_completes_commands_and_options() -> None:
    assert "deploy" in _completed("sdk dep")
    assert "--device" in _completed("sdk deploy --dev")


def test_a_shell_completes_names(tmp_path: Path) -> None:
    (tmp_path / "edgetlm").mkdir()
    (tmp_path / "edgetlm" / "devices.toml").write_text(
        '[devices.kitchen]\nkind = "ssh"\nhost = "kitchen"\ntags = ["lab"]\n'
    )
    bundle = tmp_path / "edgetlm-out" / "net" / "bundle"
    bundle.mkdir(parents=True)
    (bundle / "manifest.json").write_text("damaged")
    folder = str(tmp_path)
    assert _completed("sdk deploy x --device k", folder) == ["kitchen"]
    assert _completed("sdk deploy x --device local,", folder) == [
        "local,local",
        "local,kitchen",
        "local,tag:lab",
    ]
    assert _completed("sdk devices doctor ", folder) == ["kitchen"]
    assert _completed("sdk compile x --target raspberry_pi_5", folder) == ["raspberry_pi_5"]
    assert _completed("sdk deploy x --objective e", folder) == ["energy", "edp"]
    assert _completed("sdk run edge", folder) == ["edgetlm-out/net/bundle"]
    assert _completed("sdk explain edgetlm-out/net/bundle --task c", folder) == [], "damaged, and no message"
    assert _completed("sdk records list --device ki", folder) == ["kitchen"]


@pytest.mark.parametrize("name", ["run", "chat"])
def test_what_can_run_is_completed_by_bundle_and_by_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "edgetlm-out" / "net" / "bundle").mkdir(parents=True)
    (tmp_path / "edgetlm-out" / "net" / "bundle" / "manifest.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    machine = SimpleNamespace(bundles=lambda: [{"name": "edge"}, {"name": "other"}])
    monkeypatch.setattr(api, "connect", lambda device: nullcontext(machine))
    [(command, context)] = [one for one in _all() if one[1].command_path == f"sdk {name}"]
    [argument] = [one for one in command.get_params(context) if one.name == "bundle"]
    offered = {one.value for one in argument.shell_complete(context, "ed")}
    assert offered == {"edgetlm-out/net/bundle", "edge"}


def test_words_that_bash_breaks_are_completed_behind_the_break(tmp_path: Path) -> None:
    """It breaks words at ":" and "=", and replaces what is behind the last of them."""
    (tmp_path / "edgetlm").mkdir()
    entry = 'kind = "ssh"\nhost = "kitchen"\ntags = ["lab", "lawn"]\n'
    (tmp_path / "edgetlm" / "devices.toml").write_text(f"[devices.kitchen]\n{entry}")
    folder = str(tmp_path)
    deploy = ["sdk", "deploy", "x"]
    assert _completed_words([*deploy, "--device", "tag", ":", "la"], folder) == ["lab", "lawn"]
    assert _completed_words([*deploy, "--device", "tag", ":"], folder) == ["lab", "lawn"]
    assert _completed_words([*deploy, "--device", "=", "ki"], folder) == ["kitchen"]
    assert _completed_words([*deploy, "--device", "=", "tag", ":", "law"], folder) == ["lawn"]
    assert _completed_words([*deploy, "--shape", "x", "=", "1,3", "--objective", "e"], folder) == [
        "energy",
        "edp",
    ]
    assert joined(["a", "=", "b", "c", ":", "", "d"], 3) == (["a=b", "c:", "", "d"], 1)


def test_a_list_is_written_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["targets", "-o", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {"local", "raspberry_pi_5"} <= {one["name"] for one in listed}
    assert main(["targets", "-o", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["name"] for row in rows] == [one["name"] for one in listed]
    assert [row["power"] for row in rows] == [one["power"] or "" for one in listed]
    assert main(["targets", "-o", "md"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(listed) + 2


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["targets", "-o", "xml"], "-o"),
        (["targets", "-oxml"], "-o"),
        (["targets", "--format", "xml"], "--format"),
        (["targets", "-o", "csv", "--format=xml"], "--format"),
        (["bundles", "-o", "xml"], "-o"),
        (["explain", "bundle", "--task", "t", "-o", "page.html", "--format", "xml"], "--format"),
    ],
)
def test_an_unknown_form_is_refused_under_the_flag_that_was_typed(
    words: list[str], flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert f" {flag} xml: use table, json, csv, md" in capsys.readouterr().err


def test_what_a_board_says_writes_no_column_and_no_escape(capsys: pytest.CaptureFixture[str]) -> None:
    for form in ("json", "csv", "md"):
        rows = [("a|b", "\x1b[31mred\nline"), ("c", None)]
        write_list(form, lambda: pytest.fail("no table"), ("name", "text"), rows)
        printed = capsys.readouterr().out
        assert "\x1b" not in printed
        if form == "json":
            assert json.loads(printed)[0]["text"] == "\x1b[31mred\nline"
        else:
            assert len(printed.splitlines()) == (3 if form == "csv" else 4)
    assert "a\\|b" in printed


def test_rows_for_programs_are_alone_on_standard_output(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def profiled(*given: object, **settings: object) -> DeployResult:
        note("the board was restarted")
        return result()

    monkeypatch.setattr("sdk.api.profile", profiled)
    (tmp_path / "edgetlm.toml").write_text("model = 'net.onnx'\n")
    monkeypatch.chdir(tmp_path)
    assert main(["profile", "-o", "json"]) == 0
    written = capsys.readouterr()
    assert {row["engine"] for row in json.loads(written.out)} >= {"tvm", "onnxruntime"}
    assert "project edgetlm.toml gives model" in written.err
    assert "note: the board was restarted" in written.err
    assert main(["profile", "-o", "md"]) == 0
    assert "| tvm | 2 |" in capsys.readouterr().out
    assert main(["profile"]) == 0
    written = capsys.readouterr()
    assert "note: the board was restarted" in written.out and written.err == ""
