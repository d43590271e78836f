"""Text on its way to people: names and reasons of models, boards and agents come from elsewhere."""

from __future__ import annotations

from device_agent.contract.text import printable

# An escape of a character outside of the first plane has ten.
_ESCAPE = 10
_LONGEST_LINE = 8000


def visible_line(text: object, limit: int = _LONGEST_LINE) -> str:
    """One line as `printable` makes it, with the spaces that align a table."""
    words = str(text)[:limit].split(" ")
    line = " ".join(printable(word, _ESCAPE * len(word) + 3) for word in words)
    return line if len(line) <= limit else line[: limit - 3] + "..."


def visible_lines(text: object) -> str:
    """Several lines, each as `visible_line` makes it; of any number."""
    return "\n".join(visible_line(line) for line in str(text).split("\n"))
