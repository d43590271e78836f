"""Calibrations of other hosts: read by strict rules, and kept for machines of the same kind.

    CALIBRATION/machines/HASH.json   of the machines with this hash (`machine_hash`), with the pack it came in

A device's own calibration counts first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from device_agent.contract import strict_json
from device_agent.contract.fields import Fields
from device_agent.contract.limits import LIMITS
from device_agent.contract.manifest import is_digest
from device_agent.contract.text import is_printable
from host.calibration.model import SCHEMA, Calibration, CurvePoint, LevelFigures
from host.errors import UserError
from host.files import written_whole
from host.places import data_root

_MAX_BYTES = 1 << 20
_LEVELS, _POINTS, _VERSIONS = 16, 4096, 100
# Beyond these, no figure of any machine lies: bytes, rates a second, cycles, seconds.
_LEAST, _MOST = 1e-15, 1e18
_WHOLE = 1 << 60


def calibration_from_elsewhere(data: bytes) -> Calibration:
    """Read a calibration that is not trusted; `complaints` decides whether it can be true of a board.

    Raises:
        ValueError: it is none; the message is one line.
    """
    content = strict_json.parse(data, _MAX_BYTES, "the calibration")
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise ValueError(f"its calibration is not of the schema {SCHEMA}")
    fields = Fields(content, lambda text: ValueError(f"its calibration is wrong: {text}"))
    machine = fields.text("machine")
    if not is_digest(machine):
        raise fields.wrong("machine", "a SHA-256")
    return Calibration(
        device=_name(fields, "device"),
        board=_name(fields, "board"),
        machine=machine,
        date=_date(fields, "date"),
        versions=fields.text_map("versions", _VERSIONS),
        seconds=fields.seconds("seconds"),
        vector_bits=fields.whole("vector_bits", 0, 1 << 16),
        frequency_hz=_rate(fields, "frequency_hz"),
        peak_flops=_rate(fields, "peak_flops"),
        fma_latency_cycles=_rate(fields, "fma_latency_cycles"),
        levels=tuple(_level(one) for one in fields.objects("levels", _LEVELS)),
        parallel_launch_s=_rate(fields, "parallel_launch_s") if fields.has("parallel_launch_s") else None,
        threads=fields.whole("threads", 1, LIMITS.records.threads),
        load=fields.number("load", 0.0, _MOST),
        spread=_rate(fields, "spread"),
        curve=tuple(
            CurvePoint(one.whole("size_bytes", 1, _WHOLE), _rate(one, "bandwidth_bytes_per_s"))
            for one in fields.objects("curve", _POINTS)
        ),
    )


@contextmanager
def pulled_calibration(calibration: Calibration, pack: Mapping[str, str]) -> Iterator[bool]:
    """Keep a calibration from a pack, unless one of its machine that is as young is there.

    It is written before the block runs, and counts when the block has ended without an error.

    Args:
        calibration: from elsewhere.
        pack: where it comes from.

    Yields:
        Whether it is new.

    Raises:
        OSError: it cannot be written.
    """
    path = calibration_path_of_machine(calibration.machine)
    known = for_machine(calibration.machine)
    if known is not None and _time(known[0].date) >= _time(calibration.date):
        yield False
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as partial:
        partial.write_text(json.dumps({**calibration.to_json(), "pack": dict(pack)}, indent=1) + "\n")
        yield True


def for_machine(machine: str) -> tuple[Calibration, str] | None:
    """The calibration of a kind of machine that came in a pack, and who signed the pack; None without one.

    Raises:
        UserError: the file is damaged.
    """
    path = calibration_path_of_machine(machine)
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(
            f"{path} cannot be read ({error.strerror}): remove it and pull the pack again"
        ) from error
    try:
        found = calibration_from_elsewhere(data)
        pack: Any = json.loads(data).get("pack")
        signer = Fields(pack if isinstance(pack, dict) else {}, ValueError).text("signer")
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}): remove it and pull the pack again") from error
    return found, signer


def calibration_path_of_machine(machine: str) -> Path:
    """The path of the calibration of machines with this hash."""
    return data_root() / "calibration" / "machines" / f"{machine}.json"


def _level(fields: Fields) -> LevelFigures:
    size = fields.whole("working_set_bytes", 1, _WHOLE)
    return LevelFigures(
        _name(fields, "name"), size, _rate(fields, "bandwidth_bytes_per_s"), _rate(fields, "latency_s")
    )


def _name(fields: Fields, name: str) -> str:
    value = fields.name(name)
    if not is_printable(value):
        raise fields.wrong(name, "a name")
    return value


def _rate(fields: Fields, name: str) -> float:
    return fields.number(name, _LEAST, _MOST)


def _date(fields: Fields, name: str) -> str:
    text = _name(fields, name)
    try:
        made = _time(text)
    except ValueError:
        raise fields.wrong(name, "a date with its time zone") from None
    # The newer of two stays: one of a wrong clock would stay for ever.
    if made > datetime.now(UTC) + timedelta(seconds=LIMITS.records.ahead_s):
        raise fields.wrong(name, "a date in the past")
    return text


def _time(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError("no time zone")
    return found
