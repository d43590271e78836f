"""Tables of the documents from the committed results: `python -m benchmarks.tables [--check]`.

Rewrites the marked blocks of README.md and docs/*.md. With `--check` nothing is written, and the exit code is
1 if a document is not what its results make of it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks.tables import TABLES
from benchmarks.tables.blocks import documents, updated
from host.errors import UserError


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tables", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say which documents would change")
    options = parser.parse_args(arguments)
    stale = 0
    for path in documents():
        before = path.read_text()
        try:
            after = updated(before, TABLES)
        except UserError as error:
            print(f"{path.name}: {error}", file=sys.stderr)
            return 2
        if after == before:
            continue
        stale += 1
        print(f"{path.name} {'is out of date' if options.check else 'written'}")
        if not options.check:
            path.write_text(after)
    return 1 if stale and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
