"""The definition of a table: the results that it needs, and the lines made from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from benchmarks.result_file import Result


@dataclass(frozen=True)
class Table:
    """A table of a document.

    Attributes:
        results: names of the result files, without their ending; none for a table of other data.
        make: lines of Markdown, from these results in this order.
    """

    results: tuple[str, ...]
    make: Callable[..., list[str]]

    def lines(self, *results: Result) -> list[str]:
        """The table, and where its figures come from."""
        lines = self.make(*results)
        return [*lines, "", *(_source(result) for result in results)] if results else lines


def _source(result: Result) -> str:
    day = result.date.date().isoformat()
    machine = f"{result.cpu}, {result.cores} cores"
    remark = f" {result.remark}" if result.remark else ""
    return f"- `{result.command}`, {day}, commit {short_commit(result.commit)}, {machine}.{remark}"


def short_commit(commit: str) -> str:
    """The first digits of a commit, with the "+" of one whose files were changed."""
    return commit[:10] + "+" * commit.endswith("+")


def markdown(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Lines of a Markdown table."""
    return [_row(head), "|" + "---|" * len(head), *(_row(row) for row in rows)]


def _row(cells: Sequence[object]) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def significant(value: float, digits: int = 3) -> str:
    """A number with so many significant digits, without an exponent."""
    text = f"{value:.{digits}g}"
    return f"{float(text):.0f}" if "e" in text and abs(value) >= 1 else text
