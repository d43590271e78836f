"""The page of the command line, out of the commands themselves: what `--help` shows, command by command."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from sdk.cli.main import build_app

# As wide as the help is in a terminal of the usual size.
_WIDTH = 80
_TITLE = """# Command line

`sdk COMMAND --help` shows the same in a terminal. Exit code 0 means success, 1 a failure, 2 a mistake in the
command line, 3 a gate that is not met or a regression, 130 an interruption. This page is made from the
commands.

![The commands](../screens/help.svg)
"""


def commands() -> Iterator[tuple[Any, Any]]:
    """Every command and group with its context, parents before their children."""
    root = typer.main.get_command(build_app())
    yield from _below(root, root.context_class(root, info_name="sdk", terminal_width=_WIDTH))


def command_page() -> str:
    """The page in Markdown."""
    parts = [_TITLE]
    for command, context in commands():
        level = "##" if context.command_path.count(" ") < 2 else "###"
        parts.append(f"{level} {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n")
    return "\n".join(parts)


def _below(command: Any, context: Any) -> Iterator[tuple[Any, Any]]:
    yield command, context
    for name, child in getattr(command, "commands", {}).items():
        yield from _below(child, child.context_class(child, info_name=name, parent=context))
