"""Runs what the documentation tells its readers to type.

    python -m tests.documents [DOCUMENT ...] [--list] [--resume] [--json FILE]

Each document has a folder, boards and an environment of its own; its statements run in order, in a shell or
an interpreter each. Ends with 1 if one failed. It takes a quarter of an hour of the processor. FILE is
written after each document; --resume leaves out those that ran to their end before, as they are now, by FILE,
and keeps them with the machine that each ran on.
"""

from __future__ import annotations

import argparse
import itertools
import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.result_file import add_json_option, heading, write_result
from tests.documents import PROGRAM, SHELL, Declarations, Statement, declarations, statements
from tests.documents.places import Place, place
from tests.documents.results import SCHEMA, counts, provenance, results_so_far, stands

_LIMIT_S = 900
_SHOWN = 1500


def main() -> int:
    """The exit status."""
    declared = declarations()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("documents", nargs="*", metavar="DOCUMENT", help="all by default")
    parser.add_argument("--list", action="store_true", help="only show what would be run")
    parser.add_argument("--resume", action="store_true", help="only run what FILE does not have yet")
    add_json_option(parser)
    given = parser.parse_args()
    if unknown := set(given.documents) - set(declared.documents):
        parser.error(f"not in declarations.toml: {', '.join(sorted(unknown))}")
    all_found = {name: list(statements(declared, name)) for name in declared.documents}
    wanted = {name: all_found[name] for name in given.documents or declared.documents}
    if given.list:
        for one in itertools.chain(*wanted.values()):
            print(f"{one.document}: {one.written}\n    {one.run or 'not run'} {one.reasons}")
        return 0
    about = heading("tests.documents", SCHEMA)
    before = results_so_far(given.json) if given.resume else {}
    done = {name: before[name] for name, found in all_found.items() if stands(before.get(name), found)}
    for document in (name for name in wanted if name not in done):
        rows = _rows(declared, document, wanted[document])
        done[document] = provenance(about, wanted[document]) | {"statements": rows}
        # In the order of the declarations, whichever ran first.
        ordered = {name: done[name] for name in all_found if name in done}
        write_result(given.json, about | {"count": counts(ordered), "documents": ordered})
    print(counts(done))
    return 1 if counts(done)["failed"] else 0


def _rows(declared: Declarations, document: str, found: list[Statement]) -> list[dict[str, Any]]:
    """What became of the statements of a document, and of what its reader has done before if that failed."""
    rows: list[dict[str, Any]] = []
    shared = document in declared.shared
    if not any(one.run for one in found):
        return [_declared(one) for one in found]
    with tempfile.TemporaryDirectory(prefix="edgetlm-doc-") as name, place(Path(name), shared) as where:
        first = [
            Statement(document, SHELL, "", line, (), (0,)) for line in declared.prepare.get(document, ())
        ]
        for one in [*first, *found]:
            row = _row(one, where)
            print(
                f"{row['outcome']:>9} {row['cpu_s']:6.1f} s  {document}: {row['statement'][:90]}", flush=True
            )
            if row["outcome"] == "failed":
                print(row["said"], file=sys.stderr, flush=True)
            rows += [row] if one.written or row["outcome"] == "failed" else []
    return rows


def _described(statement: Statement) -> dict[str, Any]:
    title = (statement.written or statement.run).strip().splitlines()[0 if statement.kind == SHELL else -1]
    return {"document": statement.document, "kind": statement.kind, "statement": title}


def _declared(statement: Statement) -> dict[str, Any]:
    return _described(statement) | {"outcome": "declared", "reasons": list(statement.reasons), "cpu_s": 0.0}


def _row(statement: Statement, where: Place) -> dict[str, Any]:
    """What became of a statement."""
    if not statement.run:
        return _declared(statement)
    row, reasons = _described(statement), list(statement.reasons)
    command = [sys.executable, "-c"] if statement.kind == PROGRAM else ["bash", "-euo", "pipefail", "-c"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    code, said = ended([*command, statement.run], where, _LIMIT_S)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1)
    same = statement.run == statement.written and not reasons
    outcome = "failed" if code not in statement.codes else "run" if same else "replaced"
    row |= {"outcome": outcome, "reasons": reasons, "code": code, "cpu_s": cpu_s}
    if statement.kind == SHELL and statement.run != statement.written:
        row["ran"] = statement.run
    return row | ({"said": said[-_SHOWN:]} if outcome == "failed" else {})


def ended(command: list[str], where: Place, limit_s: float) -> tuple[int, str]:
    """The exit status of a command and what it said; -1 where it and all that it started were ended."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        cwd=where.folder,
        env=where.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired as error:
            os.killpg(process.pid, signal.SIGKILL)
            return -1, f"not ended after {limit_s} s: {os.fsdecode(error.stdout or b'')}"
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, said


if __name__ == "__main__":
    sys.exit(main())
