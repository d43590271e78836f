"""All that reaches a terminal or a log passes here: plain lines, errors, remarks of libraries.

`sdk.cli.terminal` has the tables and the progress, whose library takes a while to load.

What is shown comes from models, boards and agents: no character of it moves a cursor, sets a colour, turns
the direction of writing or begins a line of its own, and no word of it is markup. stderr stays free for the
one line of an error.
"""

from __future__ import annotations

import io
import logging
import sys
import warnings
from typing import TextIO

from sdk.text import visible_line, visible_lines


def print_line(text: str) -> None:
    """One line of a result."""
    sys.stdout.write(visible_line(text) + "\n")


def print_piece(text: str) -> None:
    """A part of a text that comes piece by piece, shown at once; lines break where it breaks them."""
    sys.stdout.write(visible_lines(text))
    sys.stdout.flush()


def print_text(text: str) -> None:
    """Several lines of a result."""
    sys.stdout.write(visible_lines(text) + "\n")


def print_error(text: str) -> None:
    """The one line of an error."""
    sys.stderr.write(visible_line(" ".join(text.split())) + "\n")


def print_trace(text: str) -> None:
    """Print the traceback of an error, for --verbose."""
    sys.stderr.write(visible_lines(text.rstrip("\n")) + "\n")


def escape_unencodable_text() -> None:
    """Print escapes for characters that a terminal's encoding does not have."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def show_library_messages() -> None:
    """Show what libraries log and warn of, for --verbose, as lines like all others."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Visible("%(name)s: %(message)s"))
    # In place of Python's own handler of last resort, which shows a text as it is.
    logging.lastResort = handler
    warnings.showwarning = _show_warning


class _Visible(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return visible_lines(super().format(record))


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    sys.stderr.write(visible_line(f"{filename}:{lineno}: {category.__name__}: {message}") + "\n")
