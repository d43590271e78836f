"""The help of the commands: grouped options, an example, and no line or word that 80 columns would break."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from sdk.cli.project import ProjectContext

_WIDEST = 100
_INDENT = "  "
# Names that are longer have their help below them.
_NAME_COLUMN = 24
_SETTINGS = {"help_option_names": ["-h", "--help"]}


def add_command(
    group: typer.Typer,
    function: Callable[..., Any],
    example: str,
    name: str = "",
    takes_project: bool = False,
) -> None:
    """Add a command to a group.

    Args:
        group: that gets it.
        function: of the command; its docstring is the help.
        example: a command line that can be typed, for the help.
        name: of the command; the function's name if not given.
        takes_project: whether a project file gives what is not typed.
    """
    kind = _ProjectCommand if takes_project else _Command
    register = group.command(name or None, cls=kind, epilog=example, context_settings=_SETTINGS)
    register(function)


def new_group(name: str, text: str, root: bool = False) -> typer.Typer:
    """A group of commands, which shows its help if no command is given.

    Args:
        name: of the group.
        text: the help.
        root: whether it is the whole command line, with the options for completion.
    """
    group = typer.Typer(
        name=name,
        help=text,
        cls=_Group,
        add_completion=root,
        invoke_without_command=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings=_SETTINGS,
    )
    if not root:
        group.callback()(show_help_alone)
    return group


def show_help_alone(context: typer.Context) -> None:
    """Show the help of a group if it was called without a command."""
    if context.invoked_subcommand is None:
        from sdk.cli.console import print_text

        print_text(context.get_help())


class _Command(TyperCommand):
    def get_help(self, ctx: Any) -> str:
        page = _Page(ctx)
        page.command(self, ctx)
        if self.epilog:
            page.title("Example" if "\n" not in self.epilog else "Examples")
            page.lines.extend(f"{_INDENT}{line}" for line in self.epilog.splitlines())
        return "\n".join(page.lines)


class _ProjectCommand(_Command):
    context_class = ProjectContext


class _Group(TyperGroup):
    def get_help(self, ctx: Any) -> str:
        page = _Page(ctx)
        page.command(self, ctx)
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        page.title("Commands")
        page.table([(name, _first_sentence(one.help or "")) for name, one in found if one is not None])
        return "\n".join(page.lines)


class _Page:
    """Lines of a help page.

    Args:
        context: of the command, with the width of the terminal.
    """

    def __init__(self, context: Any) -> None:
        self.lines: list[str] = []
        self._width = context.terminal_width or min(shutil.get_terminal_size().columns, _WIDEST)

    def command(self, command: TyperCommand | TyperGroup, context: Any) -> None:
        """Add what all commands have: usage, description, and parameters by group."""
        usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
        self._wrapped(f"Usage: {usage}", " " * 7)
        for paragraph in (command.help or "").split("\n\n"):
            self.lines.append("")
            self._wrapped(" ".join(paragraph.split()), _INDENT, _INDENT)
        for title, rows in _sections(command, context).items():
            self.title(title)
            self.table(rows)

    def title(self, text: str) -> None:
        """Begin a section of the page with this title."""
        self.lines += ["", f"{text}:"]

    def table(self, rows: Sequence[tuple[str, str]]) -> None:
        """Add names and their texts in two columns; a text stands below a name that is too long."""
        longest = max((len(name) for name, _ in rows if len(name) <= _NAME_COLUMN), default=0)
        indent = " " * (len(_INDENT) + longest + 2)
        for name, text in rows:
            begin = f"{_INDENT}{name}"
            if len(name) > longest:
                self.lines.append(begin)
                begin = ""
            self._wrapped(text, indent, begin.ljust(len(indent)))

    def _wrapped(self, text: str, indent: str, first: str = "") -> None:
        self.lines += textwrap.wrap(
            text,
            self._width,
            initial_indent=first,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [first.rstrip()]


def _sections(command: TyperCommand | TyperGroup, context: Any) -> dict[str, list[tuple[str, str]]]:
    """Names and texts of the parameters by the title of their group; those without a group come last."""
    titled: dict[str, list[tuple[str, str]]] = {}
    last: list[tuple[str, str]] = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is None:
            continue
        title = getattr(parameter, "rich_help_panel", None)
        if parameter.param_type_name == "argument":
            title = "Arguments"
        (titled.setdefault(title, []) if title else last).append(record)
    return titled | ({"Options": last} if last else {})


def _first_sentence(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split()).split(". ")[0].rstrip(".")
