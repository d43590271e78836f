"""How the function of a chain in bands says what it is made of: for its writer and for its rule."""

from __future__ import annotations

# Annotations of blocks: the loop over bands, with their number; and a part, with its own.
BANDS, PART = "edgetlm.bands", "edgetlm.part"
_NAMES = ("first", "second", "third")


def part_name(number: int) -> str:
    """What a part is called, in the names of its blocks and its decisions."""
    return _NAMES[number]
