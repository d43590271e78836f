"""Blocks of documents that are made from result files.

    <!-- table NAME -->
    ...
    <!-- end of table -->

A block whose result file is missing keeps its content, under a line that says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from benchmarks.reproduce import RUNS, Run
from benchmarks.result_file import RESULTS, ROOT, read_result
from benchmarks.tables.table import Table
from host.errors import UserError

_BLOCK = re.compile(r"<!-- table (?P<name>\S+) -->\n(?P<body>.*?)<!-- end of table -->", re.DOTALL)
_NOTICE = "*Without a committed result.*"


def documents(root: Path = ROOT) -> list[Path]:
    """The documents that may have blocks."""
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def names_in(text: str) -> Iterator[str]:
    """The names of the tables that a document contains."""
    for block in _BLOCK.finditer(text):
        yield block["name"]


def updated(text: str, tables: dict[str, Table], results: Path = RESULTS) -> str:
    """A document with all of its blocks made anew.

    Raises:
        UserError: there is no table of a block's name, or a result file is damaged.
    """
    return _BLOCK.sub(lambda block: _block(block["name"], block["body"], tables, results), text)


def _block(name: str, body: str, tables: dict[str, Table], results: Path) -> str:
    if name not in tables:
        raise UserError(f"no table {name!r}; there are {', '.join(tables)}")
    table = tables[name]
    missing = [one for one in table.results if not (results / f"{one}.json").is_file()]
    if missing:
        kept = [line for line in body.splitlines() if not line.startswith(_NOTICE)]
        lines = [notice([RUNS[one] for one in missing]), "", *"\n".join(kept).strip().splitlines()]
    else:
        lines = table.lines(*(read_result(results / f"{one}.json") for one in table.results))
    return "\n".join([f"<!-- table {name} -->", *lines, "<!-- end of table -->"])


def notice(runs: list[Run]) -> str:
    """The line that stands above figures whose result files are missing."""
    minutes = sum(run.minutes for run in runs)
    commands = "python -m benchmarks.reproduce " + " ".join(run.result for run in runs)
    return f"{_NOTICE} `{commands}` makes it, in about {minutes} minutes."
