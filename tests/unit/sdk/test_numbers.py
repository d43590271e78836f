"""Every number that a command takes has bounds, and what is none is refused in one line before any work."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import sdk.cli.main as command_line
from sdk.cli.main import build_app, main

_NONE = ("text", "-1", "9" * 30)
# For whole numbers these are as any text.
_NO_FLOATS = ("nan", "1e400")
# What stands for an argument that is needed beside the number.
_OTHERS = {"architecture": "aarch64"}


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, one in getattr(command, "commands", {}).items():
        yield from _commands(one, (*path, name))
    if not hasattr(command, "commands"):
        yield path, command


def _numbers() -> Iterator[Any]:
    for path, command in _commands(typer.main.get_command(build_app())):
        for number in command.params:
            kind = number.type_descriptor.annotation
            if kind not in (int, float, int | None, float | None):
                continue
            needed = []
            for other in command.params:
                if other.required and other is not number:
                    option = [] if other.param_type_name == "argument" else [other.opts[0]]
                    needed += [*option, _OTHERS.get(other.name, "absent")]
            name = number.opts[0]
            typed = [*path, *needed, *(["--"] if number.param_type_name == "argument" else [])]
            values = _NONE if kind in (int, int | None) else (*_NONE, *_NO_FLOATS)
            yield pytest.param(typed, name, values, id=" ".join((*path, name)))


NUMBERS = list(_numbers())


def test_the_numbers_of_the_command_line_are_found() -> None:
    assert len(NUMBERS) > 50


@pytest.mark.parametrize(("typed", "name", "values"), NUMBERS)
def test_a_number_beyond_its_bounds_is_refused_by_name(
    typed: list[str],
    name: str,
    values: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    app = build_app()
    monkeypatch.setattr(command_line, "build_app", lambda: app)
    monkeypatch.chdir(tmp_path)
    for kind in ("CONFIG", "DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", os.fspath(tmp_path / "home"))
    for value in values:
        assert main([*typed, f"{name}={value}" if name.startswith("-") else value]) == 2, value
        printed = capsys.readouterr()
        assert printed.err.startswith("error: ") and printed.err.count("\n") == 1, value
        assert name.strip("-") in printed.err.lower(), printed.err
        assert printed.out == ""
    assert not list(tmp_path.iterdir())
