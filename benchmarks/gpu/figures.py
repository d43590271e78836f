"""The figures of a stage: a file that is whole after every item, and that a later run goes on with."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Item = dict[str, Any]


class Figures:
    """Items of one stage, in `STAGE.json` of a folder; `STAGE.begun` names the one that is being made.

    Args:
        folder: of the results; made if need be.
        stage: name of the stage.
        run: a name of this run of the benchmark: an item that failed is made again in another run only.
    """

    def __init__(self, folder: Path, stage: str, run: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"{stage}.json"
        self._begun = folder / f"{stage}.begun"
        self._run = run
        self.items: dict[str, Item] = read(folder, stage)

    def failed(self, name: str) -> bool:
        """Whether an item was tried, in vain."""
        return "error" in self.items.get(name, {})

    def take(self, name: str, make: Callable[[], Item]) -> bool:
        """Make an item, unless it is there; what goes wrong is kept as `error`, in one line.

        Returns:
            Whether nothing went wrong now.
        """
        known = self.items.get(name)
        if known is not None and ("error" not in known or known["run"] == self._run):
            return True
        _write(self._begun, {"item": name, "run": self._run})
        try:
            made = make()
        except Exception as error:  # noqa: BLE001  the next item counts, whatever became of this one
            line = (str(error).strip().splitlines() or [""])[0]
            made = {"error": f"{type(error).__name__}: {line}"[:500], "run": self._run}
        self._keep(name, made)
        return "error" not in made

    def interrupted(self, reason: str) -> bool:
        """Give the item in which a process ended an error with the reason; whether there is such an item."""
        if not self._begun.is_file():
            return False
        begun = json.loads(self._begun.read_text())
        self._keep(begun["item"], {"error": reason, "run": begun["run"]})
        return True

    def _keep(self, name: str, made: Item) -> None:
        self.items[name] = made
        _write(self._path, self.items)
        self._begun.unlink()


def read(folder: Path, stage: str) -> dict[str, Item]:
    """The items of a stage; none where it has not begun."""
    path = folder / f"{stage}.json"
    return dict(json.loads(path.read_text())) if path.is_file() else {}


def _write(path: Path, content: Mapping[str, Any]) -> None:
    """Write a file that is whole at any time."""
    partial = path.with_suffix(f"{path.suffix}.partial")
    partial.write_text(json.dumps(content, indent=1))
    partial.replace(path)
