"""What all targets have in common: a case, how it ended, and the rules that are kept."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from device_agent.contract.text import is_hidden
from tests.fuzz.mutate import CANARY

LONGEST_S = 30.0
MAX_BYTES = 4_000_000_000
_FIRST = ".first"
# A file above this is one of holes.
_LARGE_BYTES = 64 << 20


@dataclass(frozen=True)
class Case:
    """One input.

    Attributes:
        name: of its origin.
        files: content by path below one folder; the first is what is read.
        holes: sizes of files that are mostly holes, which are more than can be in memory.
    """

    name: str
    files: Mapping[str, bytes]
    holes: Mapping[str, int] = field(default_factory=dict)

    @property
    def main(self) -> bytes:
        """The content of the first file."""
        return next(iter(self.files.values()))

    def write(self, folder: Path) -> Path:
        """Write the files; returns the first one's path."""
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                file.write(content)
                file.truncate(self.holes.get(name, len(content)))
        return folder / next(iter(self.files))

    @classmethod
    def read(cls, path: Path, first: str = "", name: str = "") -> Case:
        """A file, or the files of a folder, `first` at first: by default what `keep` has written down."""
        if path.is_file():
            return cls(name or path.name, {path.name: path.read_bytes()})
        if not first and (path / _FIRST).is_file():
            first = (path / _FIRST).read_text()
        found = {str(file.relative_to(path)): file for file in sorted(path.rglob("*")) if file.is_file()}
        found.pop(_FIRST, None)
        names = sorted(found, key=lambda one: (one != first, one))
        holes = {one: size for one in names if (size := found[one].stat().st_size) > _LARGE_BYTES}
        contents = {one: b"" if one in holes else found[one].read_bytes() for one in names}
        return cls(name or path.name, contents, holes)

    def keep(self, folder: Path) -> None:
        """Write the files so that `read` finds them again."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.write(folder)
        (folder / _FIRST).write_text(next(iter(self.files)))


@dataclass(frozen=True)
class Outcome:
    """How a case ended.

    Attributes:
        kind: "ok", "refused", or how else.
        message: the line that a person gets; "" where it is ok.
        violation: which rule was broken; "" where none was.
        memory_bytes: the most that was used, where that is known.
    """

    kind: str
    message: str = ""
    violation: str = ""
    memory_bytes: int = 0


class Target(Protocol):
    """A reader of what comes from elsewhere.

    Attributes:
        name: of the target.
        apart: whether it limits time and memory of its cases itself.
    """

    name: str
    apart: bool

    def open(self, place: Path) -> None:
        """Make ready; `place` is a folder of its own."""

    def close(self) -> None:
        """End what was started."""

    def corpus(self) -> list[Case]:
        """Everything that was a fault once."""

    def case(self, seed: int) -> Case:
        """The case of a seed, always the same one."""

    def run(self, case: Case) -> Outcome:
        """Read it and judge how that ends."""


def complaint(message: str) -> str:
    """What is wrong with a message for people; "" where nothing is."""
    if not message.strip():
        return "an empty message"
    if any(map(is_hidden, message)):
        return "a message of several lines, or with characters that are not seen: " + ascii(message[:300])
    for word in ("internal error", "Traceback (most recent"):
        if word in message:
            return f"{word!r} in the message: {message[:300]}"
    return ""


class Tree:
    """Watches folders in which nothing may change.

    Args:
        folders: that are watched, with all in them.
    """

    def __init__(self, *folders: Path) -> None:
        self._folders = folders
        self._before = self._now()

    def violation(self) -> str:
        """What has changed since; "" where nothing has."""
        now = self._now()
        if now == self._before:
            return ""
        changed = sorted({path for path, _ in now ^ self._before})
        self._before = now
        return "files outside of their place: " + ", ".join(changed[:5])

    def _now(self) -> set[tuple[str, tuple[int, ...]]]:
        found = set()
        for folder in self._folders:
            for where, names, files in os.walk(folder):
                for name in (*names, *files):
                    path = f"{where}/{name}"
                    status = Path(path).lstat()
                    stamp = () if name in names else (status.st_size, status.st_mtime_ns)
                    found.add((path, (status.st_mode, *stamp)))
        return found


def canaries(*folders: Path) -> str:
    """Whether a payload ran a command that left its mark in one of these folders."""
    for folder in folders:
        for path in folder.rglob(f"{CANARY}*"):
            return f"a command was run: it made {path}"
    return ""
