"""What boards do: who has them, and what was measured there last, out of the shared records alone.

No board is asked: reading this does not disturb a board that measures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from device_agent.contract.fields import is_number
from device_agent.contract.metrics import Metric
from host.leases.table import BoardStatus, LeaseTable
from host.records import Record, RecordStore
from host.records.epochs import BoardEpochs

HEALTHS = ("free", "held", "late", "lost", "drifted")


@dataclass(frozen=True)
class BoardActivity:
    """A board.

    Attributes:
        status: who has it, and who waits.
        measured_at: when a program was measured there last, in seconds since 1970 by the clock of the host
            that did; None where its epoch has no record.
        temperature_c: of its hottest zone after that; None where it showed none.
    """

    status: BoardStatus
    measured_at: float | None = None
    temperature_c: float | None = None


def activity(records: str | Path) -> tuple[BoardActivity, ...]:
    """Every board that was ever leased.

    Raises:
        EdgeError: the database cannot be asked.
    """
    with LeaseTable(records) as table, BoardEpochs(records) as epochs, RecordStore(records) as store:
        boards = epochs.boards()
        newest = {boards[key]: one for key, one in store.newest_by_epoch().items() if key in boards}
        return tuple(_activity(one, newest.get(one.board)) for one in table.status())


def _activity(status: BoardStatus, record: Record | None) -> BoardActivity:
    if record is None:
        return BoardActivity(status)
    # What is read of shared records has a date (`host.records.checks.check_foreign`).
    made = datetime.fromisoformat(record.made_at)
    made = made if made.tzinfo else made.replace(tzinfo=UTC)
    zones = record.measurement.state_after.get("temperatures_c")
    values = [float(one) for one in zones.values() if is_number(one)] if isinstance(zones, Mapping) else []
    return BoardActivity(status, made.timestamp(), max(values, default=None))


def metrics(boards: tuple[BoardActivity, ...]) -> list[Metric]:
    """The same as figures for Prometheus."""

    def by_board(name: str, text: str, values: Mapping[str, float | None]) -> Metric:
        rows = [
            ({"board": one.status.name, "place": one.status.board}, value)
            for one in boards
            if (value := values.get(one.status.board)) is not None
        ]
        return Metric(f"edgetlm_fleet_{name}", "gauge", text, list(rows))

    counts = {health: sum(one.status.health == health for one in boards) for health in HEALTHS}
    of = {one.status.board: one for one in boards}
    return [
        Metric(
            "edgetlm_fleet_boards",
            "gauge",
            "Boards by health.",
            [({"health": health}, float(count)) for health, count in counts.items()],
        ),
        by_board(
            "board_held",
            "Whether somebody has the board.",
            {name: float(bool(one.status.owner)) for name, one in of.items()},
        ),
        by_board(
            "board_drifted",
            "Whether the board is taken out, since its times have drifted.",
            {name: float(one.status.health == "drifted") for name, one in of.items()},
        ),
        by_board(
            "board_waiting",
            "Commands that wait for the board.",
            {name: float(len(one.status.waiting)) for name, one in of.items()},
        ),
        by_board(
            "board_heartbeat_seconds",
            "Seconds since its holder was heard of.",
            {name: one.status.heartbeat_s for name, one in of.items() if one.status.owner},
        ),
        by_board(
            "board_measured_timestamp_seconds",
            "When a program was measured there last.",
            {name: one.measured_at for name, one in of.items()},
        ),
        by_board(
            "board_temperature_celsius",
            "Temperature of its hottest zone after the last measurement.",
            {name: one.temperature_c for name, one in of.items()},
        ),
    ]
