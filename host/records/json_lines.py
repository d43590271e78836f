"""Records as a file of JSON lines: every line is one record, without loss."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from device_agent.contract.limits import LIMITS
from device_agent.contract.text import printable
from host.errors import EdgeError, UserError
from host.files import written_whole
from host.records.checks import Implausible
from host.records.record import Record, line_of, record_from_elsewhere


class Refused:
    """Records of a file whose values no measurement gives: their number, and the first with its reason."""

    def __init__(self) -> None:
        self.count = 0
        self._first = ""

    def add(self, number: int, reason: object) -> None:
        """Counts a line that was left out; the reason of the first one is kept."""
        self.count += 1
        self._first = self._first or f"line {number}: {printable(reason, 200)}"

    def __str__(self) -> str:
        """One line, "" where there is none."""
        if not self.count:
            return ""
        many = "1 record says" if self.count == 1 else f"{self.count} records say"
        return f"{many} what no measurement says (the first is {self._first})"


def write_lines(records: Iterable[Record], path: Path) -> int:
    """Write a file of records, whole or not at all; returns how many."""
    path.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with written_whole(path) as partial, partial.open("w", encoding="utf-8") as file:
        for record in records:
            file.write(line_of(record) + "\n")
            count += 1
    return count


def read_lines(path: Path, refused: Refused, shown: str = "") -> Iterator[Record]:
    """The records of a file.

    Args:
        path: of the file.
        refused: counts the records that are left out.
        shown: what messages call the file; its path if "".

    Raises:
        UserError: there is no such file.
        EdgeError: a line is no record, or every record is left out; the message has its number.
    """
    found = False
    shown = shown or str(path)
    if not path.is_file():
        raise UserError(f"{path}: no such file; give one that sdk records export wrote")
    with path.open("rb") as file:
        for number, line in bounded_lines(file):
            try:
                if line is None:
                    raise ValueError(f"longer than {LIMITS.records.line_bytes} bytes")
                record = record_from_elsewhere(line)
            except Implausible as error:
                refused.add(number, error)
                continue
            except ValueError as error:
                reason = printable(error, 200)
                raise EdgeError(
                    f"{shown}, line {number} is no record ({reason}): nothing was imported"
                ) from error
            found = True
            yield record
    if refused.count and not found:
        raise EdgeError(f"{shown}: {refused}: nothing was imported")


def bounded_lines(file: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Lines with their numbers; None in place of one that is too long, which is never in memory whole.

    Raises:
        UserError: there are more lines than a file has.
    """
    number = 0
    while line := file.readline(LIMITS.records.line_bytes + 1):
        number += 1
        if number > LIMITS.records.file_lines:
            raise UserError(f"{file.name}: more than {LIMITS.records.file_lines} lines; import it in parts")
        whole = len(line) <= LIMITS.records.line_bytes
        while not line.endswith(b"\n") and (rest := file.readline(LIMITS.records.line_bytes)):
            line, whole = rest, False
        yield number, line if whole else None
