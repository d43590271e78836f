"""What a shell completes: names of devices, targets, kernels and bundles.

What cannot be read is left out: a shell has no place for a message.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer

from host.errors import EdgeError

# Where bash breaks words, beside spaces, that are words here (its COMP_WORDBREAKS).
_BREAK = re.compile(r"[:=]+")


@contextlib.contextmanager
def whole_words() -> Iterator[None]:
    """Have the words of bash completed as they were typed: `tag:lab` and `--device=pi5` are three to it.

    Bash puts what is offered in place of what stands behind the last ":" or "=", so that the part before is
    left out of it.
    """
    if os.environ.get("_SDK_COMPLETE") != "complete_bash":
        yield
        return
    words, place = joined(os.environ.get("COMP_WORDS", "").split("\n"), int(os.environ.get("COMP_CWORD", 0)))
    os.environ |= {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(place)}
    last = words[place] if place < len(words) else ""
    value = last.partition("=")[2] if last.startswith("-") else last
    before = value[: max(value.rfind(":"), value.rfind("=")) + 1]
    offered = io.StringIO()
    try:
        with contextlib.redirect_stdout(offered):
            yield
    finally:
        lines = offered.getvalue().splitlines(keepends=True)
        sys.stdout.write("".join(line.removeprefix(before) for line in lines))


def joined(words: Sequence[str], place: int) -> tuple[list[str], int]:
    """The words as they were typed, of those that bash has broken.

    Args:
        words: of bash.
        place: number of the word with the cursor.

    Returns:
        The words, and the number among them of the one with the cursor.
    """
    found: list[str] = []
    at = place
    for number, word in enumerate(words):
        broken = _BREAK.fullmatch(word) or (word and number and _BREAK.fullmatch(words[number - 1]))
        if broken and found:
            found[-1] += word
        else:
            found.append(word)
        if number == place:
            at = len(found) - 1
    return found, at


def devices(incomplete: str) -> list[str]:
    """Names and tags that `--device` takes; after a comma those of the next one."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in _devices() if name.startswith(last)]


def registered_devices(incomplete: str) -> list[str]:
    """Names of the devices that the user added."""
    return [
        name for name in _devices() if name.startswith(incomplete) and name != "local" and ":" not in name
    ]


def targets(incomplete: str) -> list[str]:
    """Names that `--target` takes."""
    from targets import declared

    return [name for name in ("local", *declared()) if name.startswith(incomplete)]


def bundles(incomplete: str) -> list[str]:
    """Bundles of deployments from the working folder."""
    found = sorted(str(path.parent) for path in Path("edgetlm-out").glob("*/bundle/manifest.json"))
    return [path for path in found if path.startswith(incomplete)]


def installed_models(incomplete: str) -> list[str]:
    """Names of the models that this machine has installed."""
    found: set[str] = set()
    with contextlib.suppress(EdgeError, OSError):
        from sdk import api

        with api.connect("local") as board:
            found = {one["name"] for one in board.bundles()}
    return sorted(name for name in found if name.startswith(incomplete))


def runnable(incomplete: str) -> list[str]:
    """Bundles of deployments, and names of the models that this machine has installed."""
    return [*bundles(incomplete), *installed_models(incomplete)]


def kernels(context: typer.Context, incomplete: str) -> list[str]:
    """Names of the kernels of the bundle that stands before."""
    path = Path(context.params.get("bundle") or "")
    names: list[str] = []
    with contextlib.suppress(EdgeError, OSError):
        from host.bundle import read_manifest

        if path.is_dir():
            names = [kernel.name for kernel in read_manifest(path).kernels]
    return [name for name in names if incomplete in name]


def _devices() -> Iterator[str]:
    yield "local"
    with contextlib.suppress(EdgeError, OSError):
        from host.devices import Registry

        entries = Registry().entries()
        yield from entries
        yield from sorted({f"tag:{tag}" for entry in entries.values() for tag in entry.tags})
