"""Command lines as text, independent of the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer


def typer_texts(app: Any, name: str) -> Iterator[tuple[str, str]]:
    """The help of each command of an application, by the words that call it."""

    def walk(command: Any, called: str, parent: Any) -> Iterator[tuple[str, str]]:
        context = command.context_class(command, info_name=called, parent=parent, terminal_width=100)
        yield context.command_path, context.get_help() + "\n"
        for key, child in sorted(getattr(command, "commands", {}).items()):
            yield from walk(child, key, context)

    yield from walk(typer.main.get_command(app), name, None)


def argparse_text(parser: Any) -> str:
    """Every option with what it takes; the layout of a help page is the terminal's."""
    lines = [f"{parser.prog}: {parser.description or ''}"]
    for action in parser._actions:
        names = ", ".join(action.option_strings) or action.dest
        takes = f"{action.nargs} {action.choices if isinstance(action.choices, tuple) else ''}"
        lines.append(f"  {names} [{takes.strip()}] {action.help or ''}")
    text = "\n".join(lines) + "\n"
    for action in parser._actions:
        if isinstance(action.choices, dict):
            text += "".join(argparse_text(child) for child in action.choices.values())
    return text
