"""Text that is shown to people: names and reasons of models, boards and agents are not trusted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from device_agent.contract.text import printable

# Where a path begins: not within a URL, a word or a closing tag, but as that of file:///x or sqlite:////x.
_BEGIN = r"(?:(?<![\w./~<])|(?<=://)|(?<=:///))"
# One with at least one folder.
_ABSOLUTE = re.compile(_BEGIN + r"(?:/[^\s/'\"<>,;:]+){2,}")
# What is the same on every machine reveals nothing about this one.
_SYSTEM = ("/sys/", "/proc/", "/dev/", "/etc/", "/usr/", "/lib/", "/run/")

# An escape of a character outside of the first plane has ten.
_ESCAPE = 10
_LONGEST_LINE = 8000


def visible_line(text: object, limit: int = _LONGEST_LINE) -> str:
    """One line as `printable` makes it, with the spaces that align a table."""
    # One character more than is shown, so that a text that is cut off ends in dots.
    words = str(text)[: limit + 1].split(" ")
    line = " ".join(printable(word, _ESCAPE * len(word) + 3) for word in words)
    return line if len(line) <= limit else line[: limit - 3] + "..."


def visible_lines(text: object) -> str:
    """Several lines, each as `visible_line` makes it; of any number."""
    return "\n".join(visible_line(line) for line in str(text).split("\n"))


def without_host_paths(text: str) -> str:
    """Text of a page or a result that is passed on.

    Paths become relative to the working folder or the home; others lose their folders.
    """
    if "/" not in text:
        return text  # as most are: to ask for the folders takes longer than the rest
    for folder, short in ((Path.cwd(), ""), (Path.home(), "~/")):
        if folder != Path(folder.anchor):
            # Spaces in them would end `_ABSOLUTE`.
            text = re.sub(_BEGIN + re.escape(f"{folder}/"), short, text)
    return _ABSOLUTE.sub(lambda found: _shortened(found[0]), text)


def data_without_host_paths(part: Any) -> Any:
    """Plain data whose texts are as `without_host_paths` makes them."""
    if isinstance(part, Mapping):
        return {key: data_without_host_paths(value) for key, value in part.items()}
    if isinstance(part, list | tuple):
        return [data_without_host_paths(value) for value in part]
    return without_host_paths(part) if isinstance(part, str) else part


def _shortened(path: str) -> str:
    # A model's names may begin with a slash too.
    here = Path("/", path.split("/")[1]).is_dir()
    return path if path.startswith(_SYSTEM) or not here else f".../{path.rpartition('/')[2]}"
