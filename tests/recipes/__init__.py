"""The recipes of CONTRIBUTING.md, followed."""

from __future__ import annotations

import re
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "CONTRIBUTING.md"
_FILE = re.compile(r"<!-- file (?P<path>\S+) -->\n```\w+\n(?P<text>.*?)```\n", re.DOTALL)


def files() -> dict[str, str]:
    """The files of all recipes, by the path that they are to have."""
    return {found["path"]: found["text"] for found in _FILE.finditer(DOCUMENT.read_text())}
