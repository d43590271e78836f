"""The recipes of CONTRIBUTING.md, followed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "CONTRIBUTING.md"
_BLOCK = re.compile(
    r"<!-- (?P<kind>file|lines|entry) (?P<path>\S+) -->\n```\w+\n(?P<text>.*?)```\n", re.DOTALL
)
_PACKAGES = ("device_agent", "host", "sdk", "targets", "tests")


def files() -> dict[str, str]:
    """The files of all recipes, by the path that they are to have."""
    return _blocks("file")


def lines() -> dict[str, str]:
    """The lines that recipes append to files of the product, by the path of the file."""
    return _blocks("lines")


def entries() -> dict[str, str]:
    """The entries that recipes add to tables of the product, by the path of the file."""
    return _blocks("entry")


def _blocks(kind: str) -> dict[str, str]:
    found = [block for block in _BLOCK.finditer(DOCUMENT.read_text()) if block["kind"] == kind]
    return {block["path"]: block["text"] for block in found}


def copy(folder: Path, changed: Mapping[str, str]) -> None:
    """The same as `overlay` with copies: for programs that find the product by where their own file lies.

    Args:
        folder: exists and is empty.
        changed: contents by path.
    """
    for name in _PACKAGES:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path, text in changed.items():
        (folder / path).write_text(text)


def overlay(folder: Path, changed: Mapping[str, str]) -> None:
    """The product in a folder: links to its files, and the files that a recipe adds or changes.

    Args:
        folder: exists and is empty.
        changed: contents by path.
    """
    for name in _PACKAGES:
        (folder / name).symlink_to(ROOT / name)
    for path, text in changed.items():
        here, there = folder, ROOT
        for part in Path(path).parent.parts:
            here, there = here / part, there / part
            if here.is_symlink():
                here.unlink()
                here.mkdir()
                for child in there.iterdir():
                    if child.name != "__pycache__":
                        (here / child.name).symlink_to(child)
            here.mkdir(exist_ok=True)
        file = folder / path
        file.unlink(missing_ok=True)
        file.write_text(text)


def run(product: Path, where: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python with the product of a folder, and with data of its own."""
    environment = {**os.environ, "PYTHONPATH": str(product), "PYTHONDONTWRITEBYTECODE": "1"}
    environment |= {"XDG_DATA_HOME": str(where / "data"), "XDG_CONFIG_HOME": str(where / "config")}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=where, check=False)
