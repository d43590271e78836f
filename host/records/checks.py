"""The bounds of a record's values, which every measurement of a kernel keeps, of this host or another.

A time of nothing, or of no number, would sort as the fastest of all.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from device_agent.contract.limits import LIMITS
from device_agent.contract.text import is_printable

if TYPE_CHECKING:
    from host.records.record import Record

_FIRST_YEAR = 2000
_IDENTIFIER = re.compile(r"[\x21-\x7e]+")


class Implausible(ValueError):
    """A record that is well formed and has impossible values; the message is one line."""


def is_time(seconds: float) -> bool:
    """Whether so many seconds can be the time of one call."""
    return LIMITS.records.shortest_s <= seconds <= LIMITS.records.longest_s


def name(text: str) -> str:
    """A name such as that of a rule: short, and fit to be shown.

    Raises:
        ValueError: it is neither.
    """
    if not text or len(text) > LIMITS.records.name_characters or not is_printable(text):
        raise ValueError("no name")
    return text


def identifier(text: str) -> str:
    """A hash or the like: visible characters of ASCII.

    Raises:
        ValueError: it has others.
    """
    if not _IDENTIFIER.fullmatch(text):
        raise ValueError("no identifier")
    return text


def check(record: Record) -> None:
    """Refuse times, energies and threads that no measurement has.

    Raises:
        Implausible: the message says which.
    """
    limits, measurement = LIMITS.records, record.measurement
    if len(measurement.times_s) > limits.times:
        raise Implausible(f"{len(measurement.times_s)} times, at most {limits.times} are taken")
    for seconds in measurement.times_s:
        if not is_time(seconds):
            raise Implausible(f"a time of {seconds:g} s, which no program has")
    energy = measurement.energy
    for what, value in (
        ("gross_j", energy.gross_j),
        ("mean_w", energy.mean_w),
        ("peak_w", energy.peak_w),
        ("duration_s", energy.duration_s),
        ("std_j", energy.std_j),
    ):
        if value is not None and not 0.0 <= value <= limits.energy_j:
            raise Implausible(f"an energy whose {what} is {value:g}")
    # What lies above idle may be below it by noise, and is finite.
    if energy.above_idle_j is not None and not math.isfinite(energy.above_idle_j):
        raise Implausible("an energy whose above_idle_j is no number")
    for threads in (measurement.threads, record.profile.get("threads", 1)):
        if type(threads) is not int or not 1 <= threads <= limits.threads:
            raise Implausible(f"{str(threads)[:20]} threads")


def check_foreign(record: Record, now: datetime | None = None) -> None:
    """Refuse values that no record from elsewhere has; records of this machine may have a wrong clock's date.

    Args:
        record: that is to be imported.
        now: the present, for tests.

    Raises:
        Implausible: the message says why.
    """
    check(record)
    try:
        made = datetime.fromisoformat(record.made_at)
    except ValueError as error:
        raise Implausible("a date that is none") from error
    made = made if made.tzinfo else made.replace(tzinfo=UTC)
    latest = (now or datetime.now(UTC)) + timedelta(seconds=LIMITS.records.ahead_s)
    if made.year < _FIRST_YEAR or made > latest:
        raise Implausible(f"a date of {record.made_at[:10]}, which is not in the past")
    if not _shallow(record.profile) or not _shallow(record.origin.data()):
        raise Implausible("a text that is too long")


def is_plausible(record: Record) -> bool:
    """Whether `check_foreign` takes a record."""
    try:
        check_foreign(record)
    except Implausible:
        return False
    return True


def _shallow(content: Any) -> bool:
    """Whether no text of plain data is longer than any that is written; the reader bounds the depth."""
    longest = LIMITS.records.text_characters
    waiting = [content]
    # What is in a list is looked at where it stands: to put every word away first takes three times as long.
    for container in waiting:
        if isinstance(container, str) and len(container) > longest:
            return False
        parts = (*container, *container.values()) if isinstance(container, dict) else container
        if not isinstance(parts, (list, tuple)):
            continue
        for one in parts:
            if isinstance(one, str):
                if len(one) > longest:
                    return False
            elif isinstance(one, (dict, list)):
                waiting.append(one)
    return True
