"""What a result file says of each document, and whether that is still true."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple
from pathlib import Path
from typing import Any

from benchmarks.result_file import read_result
from tests.documents import Statement

SCHEMA = "edgetlm.documents/1"
OUTCOMES = ("run", "replaced", "declared", "failed")


def results_so_far(path: Path | None) -> dict[str, dict[str, Any]]:
    """What became of each document, by a result file; nothing where there is none.

    Each document gets the machine that it ran on: where it names none, that of the heading, which the next
    run replaces.

    Raises:
        UserError: the file is no result.
    """
    if path is None or not path.is_file():
        return {}
    result = read_result(path)
    ran_on = {"machine": {"cpu": result.cpu, "cores": result.cores}}
    return {name: ran_on | found for name, found in result.figures["documents"].items()}


def provenance(heading: Mapping[str, Any], wanted: Iterable[Statement]) -> dict[str, Any]:
    """The date, the commit and the machine of a run of a document, and the digest of its statements.

    Args:
        heading: of the result.
        wanted: the statements of the document.
    """
    machine = {name: heading["machine"][name] for name in ("cpu", "cores")}
    return {
        "date": heading["date"],
        "commit": heading["commit"],
        "machine": machine,
        "text": digest(wanted),
    }


def stands(found: Mapping[str, Any] | None, wanted: Iterable[Statement]) -> bool:
    """Whether a document ran to its end before, with what it says now."""
    if found is None or found["text"] != digest(wanted):
        return False
    return all(row["outcome"] != "failed" for row in found["statements"])


def digest(wanted: Iterable[Statement]) -> str:
    """Of the statements of a document, and of what is run for them."""
    text = json.dumps([astuple(one) for one in wanted])
    return hashlib.sha256(text.encode()).hexdigest()


def counts(documents: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """The number of statements by outcome."""
    rows = [row for one in documents.values() for row in one["statements"]]
    return {name: sum(row["outcome"] == name for row in rows) for name in OUTCOMES}
