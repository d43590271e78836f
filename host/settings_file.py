"""Files of settings that may come from elsewhere: TOML or JSON, of a bounded size and depth."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from device_agent.contract import strict_json

LARGEST_BYTES = 1 << 18
# The time that Python's reader takes grows with the square of a line's dotted names.
LONGEST_LINE = 4096


def read_table(path: Path) -> dict[str, Any]:
    """The table of a file.

    Args:
        path: TOML, or JSON where it is called so.

    Raises:
        FileNotFoundError: there is no such file.
        OSError: it cannot be read.
        ValueError: it is no table of at most `LARGEST_BYTES`, or has a line beyond `LONGEST_LINE`.
    """
    with path.open("rb") as file:
        data = file.read(LARGEST_BYTES + 1)
    if len(data) > LARGEST_BYTES:
        raise ValueError(f"it has more than {LARGEST_BYTES} bytes")
    if path.suffix == ".json":
        found = strict_json.parse(data, LARGEST_BYTES, "it")
    else:
        try:
            if max(map(len, data.split(b"\n"))) > LONGEST_LINE:
                raise ValueError(f"it has a line of more than {LONGEST_LINE} bytes")
            found = tomllib.loads(data.decode("utf-8"))
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error
    if not isinstance(found, dict):
        raise ValueError("it is no table")
    return found
