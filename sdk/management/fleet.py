"""The boards that hosts share by their records: who has which, and a way to take one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from host.errors import UserError

if TYPE_CHECKING:
    from host.leases import BoardStatus, LeaseTable


def status(records: str) -> tuple[BoardStatus, ...]:
    """Every board that was ever leased.

    Args:
        records: URL of the shared records.

    Raises:
        UserError: the records are of this machine alone.
        EdgeError: the database cannot be asked.
    """
    with _leases(records) as table:
        return table.status()


def release(records: str, board: str) -> BoardStatus:
    """Take a board from whoever has it; returns whose it was.

    Args:
        records: URL of the shared records.
        board: its name, or what every host calls it.

    Raises:
        UserError: nobody has it, or the records are of this machine alone.
        EdgeError: the database cannot be asked.
    """
    from host.transport.wire import client_name

    with _leases(records) as table:
        return table.release_by_force(board, client_name())


def _leases(records: str) -> LeaseTable:
    from host.leases import LeaseTable
    from host.records.database import is_shared

    if not is_shared(records):
        raise UserError(
            "boards are leased where hosts share their records: name these with --records"
            " postgresql+psycopg://me@host/records, or set EDGETLM_RECORDS"
        )
    return LeaseTable(records)
