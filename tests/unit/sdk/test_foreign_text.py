"""Names and reasons of others on their way to a terminal, a log, a report: seen, and obeyed by nobody."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from host.devices import notes
from host.errors import DeviceError
from host.files import writing
from host.records import RecordOrigin, RecordStore
from sdk.cli import main as main_module
from sdk.cli import printing
from sdk.cli import terminal as terminal_module
from sdk.cli.console import print_error, print_line
from sdk.cli.main import main
from sdk.cli.terminal import ConsoleProgress, cell
from sdk.text import visible_line, visible_lines
from tests.unit.records.samples import record

# A title, a colour, a turn of the writing, a line of its own, a carriage return, a lone surrogate, a NUL.
EVIL = "a\x1b]0;PWN\x07\x1b[31m\u202eb\u2066\nerror: c\r\x9b2J\x00\udcff[bold red]d[/][link=http://x]e[/link]:smile:"
SEEN = r"a\x1b]0;PWN\x07\x1b[31m\u202eb\u2066 error: c \x9b2J\x00\udcff[bold red]d[/][link=http://x]e[/link]:smile:"


def _clean(text: str) -> bool:
    return all(character == "\n" or character.isprintable() for character in text)


def test_a_line_is_one_line_and_keeps_what_aligns_it() -> None:
    assert visible_line(f"name      {EVIL}  x") == f"name      {SEEN}  x"
    assert visible_lines(f"{EVIL}\n  b") == f"{SEEN.replace(' error', chr(10) + 'error')}\n  b"
    assert visible_line("") == "" and visible_line("  a") == "  a"
    assert visible_line("x" * 8000) == "x" * 8000
    assert visible_line("x" * 8001) == "x" * 7997 + "..."
    assert len(visible_line("x" * 10**7)) == 8000 and len(visible_line("\x1b" * 10**6)) == 8000


def test_lines_errors_and_notes_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    print_line(EVIL)
    print_error(f"error: {EVIL}")
    assert capsys.readouterr() == (f"{SEEN}\n", f"error: {SEEN}\n")


def test_progress_shows_text_and_obeys_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for terminal in (False, True):
        screen = io.StringIO()

        def console(terminal: bool = terminal, screen: io.StringIO = screen, **options: object) -> Console:
            options |= {"file": screen, "force_terminal": terminal, "color_system": None, "width": 300}
            return Console(**options)

        monkeypatch.setattr(terminal_module, "Console", console)
        monkeypatch.setattr(terminal_module, "_LINE_EACH_S", 0.0)
        with ConsoleProgress() as progress:
            progress.stage(f"stage {EVIL}")
            progress.status(EVIL)
            progress.note(EVIL)
        shown = screen.getvalue()
        assert f"note: {SEEN}" in shown and f"stage {SEEN}" in shown
        assert (
            "\x1b]0;" not in shown
            and "\x1b[31m" not in shown
            and "\x9b" not in shown
            and "\r\x1b]" not in shown
        )
        assert "\u202e" not in shown and "\x07" not in shown
        assert terminal or _clean(shown)


def test_a_cell_of_a_table_is_no_markup() -> None:
    assert cell(EVIL).plain == SEEN and not cell(EVIL).spans


@pytest.mark.parametrize("verbose", [False, True])
def test_errors_traces_logs_and_warnings_of_a_command(
    verbose: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # As in a process of its own, where nobody else listens.
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(logging, "lastResort", logging.lastResort)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)

    def fail(*_arguments: object, **_more: object) -> int:
        if verbose:
            logging.getLogger("some.library").warning("%s", EVIL)
            with warnings.catch_warnings():
                warnings.simplefilter("always")
                warnings.warn(EVIL, UserWarning, stacklevel=1)
        notes.note(EVIL)
        raise DeviceError(EVIL)

    monkeypatch.setattr(main_module, "build_app", lambda: fail)
    monkeypatch.setattr(
        main_module, "State", lambda: type("State", (), {"verbose": verbose, "for_programs": False})()
    )
    try:
        assert main(["--verbose"] if verbose else []) == 1
    finally:
        logging.disable(logging.NOTSET)
    out, err = capsys.readouterr()
    assert out == f"note: {SEEN}\n"
    assert err.endswith(f"error: {SEEN}\n") and _clean(err)
    if verbose:
        assert "Traceback" in err and f"UserWarning: {SEEN}" in err and "some.library: a\\x1b]0;PWN" in err
    else:
        assert err.count("\n") == 1


def test_an_error_of_no_kind_of_ours_is_clean_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for error in (ValueError(EVIL), OSError(5, EVIL, EVIL), ImportError(EVIL)):

        def fail(*_arguments: object, error: Exception = error, **_more: object) -> int:
            raise error

        monkeypatch.setattr(main_module, "build_app", lambda fail=fail: fail)
        assert main([]) == 1
        assert _clean(capsys.readouterr().err)


def test_words_of_the_command_line_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        [EVIL],
        ["deploy", EVIL],
        ["devices", "remove", EVIL],
        ["run", "x", f"--{EVIL}"],
    ):
        assert main(arguments) == 2
        assert _clean("".join(capsys.readouterr()))


def test_records_of_others_in_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = EVIL.replace("\udcff", "")
    one = replace(record(1.0), origin=RecordOrigin(task=text))
    one.profile["board"] = text
    store = tmp_path / "r.sqlite"
    with RecordStore(store) as made:
        made.append([one])
    assert main(["records", "list", "--records", str(store)]) == 0
    out = capsys.readouterr().out
    assert _clean(out) and "[bold red]d[/]" in out.replace("\n", "")


def test_what_boards_and_bundles_say(capsys: pytest.CaptureFixture[str]) -> None:
    bundle = {
        "active": True,
        "manifest": {"signature": {"length": {"name": EVIL, "low": 1, "high": 2}}},
        "name": EVIL,
        "version": EVIL,
        "backend": EVIL,
    }
    printing.print_bundles([bundle])
    printing.print_devices([(EVIL, EVIL)])
    printing.print_targets({EVIL: [EVIL]})
    printing.print_env({EVIL: {EVIL: EVIL}})
    out = capsys.readouterr().out
    assert _clean(out) and out.count("\n") == 5


def test_figures_are_json_in_plain_letters(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    with writing(path):
        printing.write_json(path, {EVIL: [EVIL]})
    data = path.read_bytes()
    assert all(byte == 10 or 32 <= byte < 127 for byte in data)
    assert json.loads(data) == {EVIL: [EVIL]}


def _run(*arguments: str | bytes, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "sdk.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **environment},
    )


def test_a_terminal_that_is_not_utf_8_and_a_name_that_is_no_text(tmp_path: Path) -> None:
    missing = os.fsencode(tmp_path) + b"/caf\xe9\xff\xc3\xa9.onnx"
    ascii_only = {
        "PYTHONIOENCODING": "ascii:strict",
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
    }
    for environment in (ascii_only, {"PYTHONIOENCODING": "utf-8:strict"}):
        process = _run(b"deploy", missing, **environment)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 2 and out == b""
        assert b"no such file" in err and err.count(b"\n") == 1 and b"Traceback" not in err


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_goes_away_is_told_nothing(unbuffered: str) -> None:
    process = _run("targets", PYTHONUNBUFFERED=unbuffered)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    with process.stderr as messages:
        assert messages.read() == b""
    assert process.wait(120) == 1
