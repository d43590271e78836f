"""The boards that hosts share by their records: who has which, and a way to take one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from host.errors import UserError

if TYPE_CHECKING:
    from device_agent.contract.metrics import MetricsServer
    from host.leases import BoardStatus, LeaseTable
    from host.leases.activity import BoardActivity


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
    """Take a board from its holder; returns who held it.

    Args:
        records: URL of the shared records.
        board: its name, or what every host calls it.

    Raises:
        UserError: no host has it, or the records are of this machine alone.
        EdgeError: the database cannot be asked.
    """
    from host.transport.wire import client_name

    with _leases(records) as table:
        return table.release_by_force(board, client_name())


def activity(records: str) -> tuple[BoardActivity, ...]:
    """Every board that was ever leased, with what was measured there last.

    Args:
        records: URL of the shared records.

    Raises:
        UserError: the records are of this machine alone.
        EdgeError: the database cannot be asked.
    """
    from host.leases.activity import activity as boards_of

    _check_shared(records)
    return boards_of(records)


def metrics_server(records: str, address: str, port: int) -> MetricsServer:
    """What answers Prometheus with the figures of all boards; the caller has it serve, and closes it.

    Args:
        records: URL of the shared records.
        address: to listen on.
        port: 0 for any.

    Raises:
        UserError: the records are of this machine alone, or nothing can listen there.
        EdgeError: the database cannot be asked.
    """
    from device_agent.contract.metrics import Metric, MetricsServer
    from device_agent.contract.text import printable
    from host.errors import EdgeError
    from host.leases.activity import activity as boards_of
    from host.leases.activity import metrics

    def collect() -> list[Metric]:
        try:
            return metrics(boards_of(records))
        except EdgeError as error:
            raise ValueError(str(error)) from error

    activity(records)
    try:
        return MetricsServer(address, port, collect)
    except (OSError, ValueError, OverflowError) as error:
        raise UserError(
            f"nothing can listen on {printable(address, 60)}, port {port} ({printable(error)}): give others "
            "with --listen and --port"
        ) from error


def _leases(records: str) -> LeaseTable:
    from host.leases import LeaseTable

    _check_shared(records)
    return LeaseTable(records)


def _check_shared(records: str) -> None:
    from host.records.place import is_shared

    if not is_shared(records):
        raise UserError(
            "boards are leased where hosts share their records: name these with --records"
            " postgresql+psycopg://me@host/records, or set EDGETLM_RECORDS"
        )
