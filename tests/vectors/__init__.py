"""Cases that both executors decide alike, as data: inputs, and what is to be decided."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def vectors(name: str) -> list[dict[str, Any]]:
    """The cases of one file.

    Args:
        name: of the file in this folder, without `.json`.

    Returns:
        For each case its `name`, `decision`, inputs, and `expected`.
    """
    return list(json.loads((Path(__file__).parent / f"{name}.json").read_text()))
