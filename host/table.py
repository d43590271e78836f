"""Tables of results: as HTML in a notebook, as a frame of pandas, as plain rows."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from device_agent.contract.text import printable
from host.errors import UserError

if TYPE_CHECKING:
    import pandas

# More rows than this make a notebook slow; a frame has all of them.
_SHOWN_ROWS = 100


@dataclass(frozen=True)
class Table:
    """Rows of figures.

    Attributes:
        name: what asks for it, a word.
        caption: one line about it.
        columns: names with units, as `median_ms`.
        rows: a value for each column; None where there is none.
    """

    name: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]

    def html(self) -> str:
        """A table without styles or anything from outside; texts are escaped."""
        head = "".join(f"<th>{_text(name)}</th>" for name in self.columns)
        body = "".join(
            f"<tr>{''.join(f'<td>{_text(value)}</td>' for value in row)}</tr>"
            for row in self.rows[:_SHOWN_ROWS]
        )
        left = len(self.rows) - _SHOWN_ROWS
        more = f"<p>{left} more rows</p>" if left > 0 else ""
        caption = f"<caption>{_text(self.caption)}</caption>"
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"

    def to_pandas(self) -> pandas.DataFrame:
        """The table as a frame.

        Raises:
            UserError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise UserError("to_pandas() needs the package pandas: pip install pandas") from error
        return pandas.DataFrame([list(row) for row in self.rows], columns=list(self.columns))


class Tabular(ABC):
    """A result with tables; the first is the one that is usually meant."""

    @abstractmethod
    def tables(self) -> Sequence[Table]:
        """The tables of the result."""

    def to_pandas(self, name: str = "") -> pandas.DataFrame:
        """A table as a frame of pandas.

        Args:
            name: of the table; the first if "".

        Raises:
            UserError: there is no such table, or pandas is not installed.
        """
        tables = {one.name: one for one in self.tables()}
        wanted = name or next(iter(tables))
        if wanted not in tables:
            raise UserError(f"no table {printable(name, 40)!r}: use {', '.join(tables)}")
        return tables[wanted].to_pandas()

    def _repr_html_(self) -> str:
        """All tables that have rows, as HTML for a notebook."""
        return "".join(table.html() for table in self.tables() if table.rows)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return html.escape(f"{value:.4g}" if isinstance(value, float) else printable(value))
