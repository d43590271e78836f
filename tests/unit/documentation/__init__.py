"""The documentation: its site, its commands and its programs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import typer

from sdk.cli.main import build_app

ROOT = Path(__file__).parents[3]
DOCUMENTS = sorted(
    [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "examples/README.md",
        *(ROOT / "docs").rglob("*.md"),
    ]
)
_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<kind>\w*)[^\n]*\n(?P<text>.*?)^(?P=indent)```", re.MULTILINE | re.DOTALL
)
_INDENTED = re.compile(r"(?:^(?: {4}|\t)\S.*\n?)+", re.MULTILINE)
_PLACEHOLDERS = {"N": "1", "PERCENT": "5"}


class Block(NamedTuple):
    """A block of code of a document."""

    document: str
    kind: str
    text: str


def blocks(path: Path) -> Iterator[Block]:
    """The blocks of a document; indented ones have no kind."""
    name, text = path.relative_to(ROOT).as_posix(), path.read_text()
    for found in _FENCE.finditer(text):
        yield Block(name, found["kind"], found["text"])
    for found in _INDENTED.finditer(_FENCE.sub("", text)):
        yield Block(name, "", re.sub(r"^(?: {4}|\t)", "", found[0], flags=re.MULTILINE))


def commands(text: str) -> Iterator[str]:
    """The calls of `sdk`, continued lines joined, without comments and without what a shell adds."""
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        for part in re.split(
            r";|&&|\|\|", re.sub(r"^\s*(?:\$ |- (?:run: )?)?", "", line.partition("  #")[0])
        ):
            if part.strip().startswith("sdk "):
                yield part.strip()


def parse(line: str) -> None:
    """Parse a command as the command line does, without running it.

    Raises:
        typer.exceptions.TyperException: there is no such command, option or value.
        EdgeError: a value is refused.
    """
    # "[--option a|b]" stands for an option that may be left out, N for a number.
    line = re.sub(r"[\[\]]", "", re.sub(r"(-\w+ \w+)(?:\|\w+)+", r"\1", line))
    words = [_PLACEHOLDERS.get(word, word) for word in shlex.split(line, comments=True)[1:]]
    words = words[: next((place for place, word in enumerate(words) if word in (">", "2>", "|")), len(words))]
    command: Any = typer.main.get_command(build_app())
    context: Any = None
    name = "sdk"
    while hasattr(command, "commands"):
        context = command.context_class(command, info_name=name, parent=context)
        if not words or words[0].startswith("-"):
            assert all(any(word in one.opts for one in command.get_params(context)) for word in words), line
            return
        name, found, words = command.resolve_command(context, words)
        command = found
    command.make_context(name, list(words), parent=context)
