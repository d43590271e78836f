"""Records as a file of JSON lines: every line is one record, without loss."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from host.errors import EdgeError, UserError
from host.records.record import Record, line_of, record_of


def write_lines(records: Iterable[Record], path: Path) -> int:
    """Write a file of records, whole or not at all; returns how many."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.part")
    count = 0
    try:
        with partial.open("w", encoding="utf-8") as file:
            for record in records:
                file.write(line_of(record) + "\n")
                count += 1
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return count


def read_lines(path: Path) -> Iterator[Record]:
    """The records of a file.

    Raises:
        UserError: there is no such file.
        EdgeError: a line is no record; the message has its number.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file; give one that sdk records export wrote")
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                record = record_of(line.decode("utf-8"))
            except ValueError as error:
                raise EdgeError(
                    f"{path}, line {number} is no record ({error}): nothing was imported"
                ) from error
            yield record
