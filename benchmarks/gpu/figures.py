"""The figures of a stage: a file that is whole after every item, and that a later run goes on with."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Item = dict[str, Any]


class Figures:
    """Items of one stage, in `STAGE.json` of a folder.

    Args:
        folder: of the results; made if need be.
        stage: name of the stage.
        run: a name of this run of the benchmark: an item that failed is made again in another run only.
    """

    def __init__(self, folder: Path, stage: str, run: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"{stage}.json"
        self._run = run
        self.items: dict[str, Item] = read(folder, stage)

    def take(self, name: str, make: Callable[[], Item]) -> bool:
        """Make an item, unless it is there; what goes wrong is kept as `error`, in one line.

        Returns:
            Whether nothing went wrong now.
        """
        known = self.items.get(name)
        if known is not None and ("error" not in known or known["run"] == self._run):
            return True
        try:
            made = make()
        except Exception as error:  # noqa: BLE001  the next item counts, whatever became of this one
            line = (str(error).strip().splitlines() or [""])[0]
            made = {"error": f"{type(error).__name__}: {line}"[:500], "run": self._run}
        self.items[name] = made
        partial = self._path.with_suffix(".partial")
        partial.write_text(json.dumps(self.items, indent=1))
        partial.replace(self._path)
        return "error" not in made


def read(folder: Path, stage: str) -> dict[str, Item]:
    """The items of a stage; none where it has not begun."""
    path = folder / f"{stage}.json"
    return dict(json.loads(path.read_text())) if path.is_file() else {}
