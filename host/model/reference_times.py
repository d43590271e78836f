"""How long a board's reference programs take, and what the board was then."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from device_agent.contract import strict_json
from device_agent.contract.fields import Fields
from device_agent.contract.limits import LIMITS
from device_agent.contract.manifest import is_digest
from device_agent.contract.text import is_printable, printable

_PROGRAMS, _ROUNDS, _PARTS = 16, 64, 48
_NAME_CHARACTERS, _TEXT_CHARACTERS = 60, 100


@dataclass(frozen=True)
class ReferenceTimes:
    """Times of the reference programs of one board (`host.calibration.references`).

    Attributes:
        programs: SHA-256 of the programs and of how they are measured; other times do not compare.
        system: what the board ran: kernel, firmware, governor, limits of the clock, versions; by name.
        seconds: of one call of each program, one figure a round; those of a round were measured in turn.
    """

    programs: str
    system: Mapping[str, str]
    seconds: Mapping[str, tuple[float, ...]]

    def to_text(self) -> str:
        """The same as JSON."""
        return json.dumps(asdict(self), sort_keys=True, allow_nan=False)


def system_parts(parts: Mapping[str, str]) -> dict[str, str]:
    """What a board says of itself, bounded, so that it may be kept and shown."""
    short = {
        printable(name, _NAME_CHARACTERS): printable(text, _TEXT_CHARACTERS)
        for name, text in sorted(parts.items())
        if text
    }
    return dict(list(short.items())[:_PARTS])


def reference_times(text: str, most_bytes: int) -> ReferenceTimes:
    """Read the text of `to_text`; it may come from elsewhere, and is checked.

    Args:
        text: as it was kept.
        most_bytes: that it may have.

    Raises:
        ValueError: it is none; the message is one line.
    """
    content = strict_json.parse(text.encode("utf-8"), most_bytes, "the epoch")
    fields = Fields(content if isinstance(content, dict) else {}, ValueError)
    programs = fields.text("programs")
    if not is_digest(programs):
        raise fields.wrong("programs", "a SHA-256")
    system = fields.text_map("system", _PARTS)
    if not all(map(is_printable, (*system, *system.values()))):
        raise fields.wrong("system", "texts of one line")
    timed = fields.object("seconds", _PROGRAMS)
    seconds = {name: tuple(timed.numbers(name, _ROUNDS)) for name in timed.values}
    low, high = LIMITS.records.shortest_s, LIMITS.records.longest_s
    for name, times in seconds.items():
        if not name or not is_printable(name) or not times or not all(low <= one <= high for one in times):
            raise fields.wrong("seconds", "times of programs by name")
    if not seconds:
        raise fields.wrong("seconds", "times of programs by name")
    return ReferenceTimes(programs, system, seconds)
