"""SHA-256 of every wheel that a board may be sent; `scripts/lock_wheels.py` writes them."""

from __future__ import annotations

import functools
import json
from pathlib import Path

from host.errors import PayloadError

_FILE = Path(__file__).with_name("pins.json")


def pinned(requirement: str) -> frozenset[str]:
    """The hashes of a distribution's wheels, in hexadecimal.

    Args:
        requirement: name and exact version, "numpy==2.4.6".

    Raises:
        PayloadError: none is known.
    """
    digests = pins().get(requirement)
    if not digests:
        raise PayloadError(
            f"no hash of {requirement} is known, so it is not sent to a board: install the versions that"
            " edgetlm pins"
        )
    return frozenset(digests)


@functools.lru_cache(maxsize=1)
def pins() -> dict[str, dict[str, str]]:
    """File name by hash of the wheels of each distribution, by its name and exact version.

    Raises:
        PayloadError: the file cannot be read.
    """
    try:
        found: dict[str, dict[str, str]] = json.loads(_FILE.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PayloadError(f"{_FILE} cannot be read ({error}): install edgetlm again") from error
    return found
