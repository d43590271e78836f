#!/usr/bin/env python3
"""Count lines between two commits: `count_lines.py BEFORE AFTER`, for the figures of docs/extending.md.

Lines by package; lines that commits added and removed, those that change no program (`[same]`) and all
others, with a moved file counted by what changed in it; lines of Python by kind; the widest folder.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import PurePath

PACKAGES = ("sdk", "host", "device_agent", "targets", "research", "benchmarks", "tests")
# What is delivered, and not what tests or measures it.
PRODUCT = PACKAGES[:5]
_SOURCES = (".py", ".cc", ".h")
_RENAMED = re.compile(r"\{(.*) => .*\}")


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", help="a commit")
    parser.add_argument("after", help="a later commit")
    options = parser.parse_args()
    for commit in (options.before, options.after):
        files = sources(commit)
        lines = Counter(name.split("/")[0] for name, text in files.items() for _ in range(text.count("\n")))
        print(commit, {name: lines[name] for name in PACKAGES})
        product = {name: text for name, text in files.items() if name.split("/")[0] in PRODUCT}
        python = [text for name, text in product.items() if name.endswith(".py")]
        kinds = sum((kinds_of(text) for text in python), Counter())
        print(f"  {len(python)} Python files of the product: {dict(kinds)}")
        print(f"  the widest folder: {widest(tuple(product))}")
    log = _git("log", "-M", "--numstat", "--no-merges", "--format=> %s", f"{options.before}..{options.after}")
    for kind, (commits, added, removed) in by_commits(log).items():
        print(f"{kind}: {commits} commits, {added} added, {removed} removed, {added - removed} more")
    return 0


def sources(commit: str) -> dict[str, str]:
    """The text of every source of the packages at a commit, by path."""
    names = _git("ls-tree", "-r", "--name-only", commit, *PACKAGES).splitlines()
    wanted = [name for name in names if name.endswith(_SOURCES)]
    asked = "".join(f"{commit}:{name}\n" for name in wanted).encode()
    found = subprocess.run(
        ["git", "cat-file", "--batch"], input=asked, capture_output=True, check=True
    ).stdout
    texts, place = {}, 0
    for name in wanted:
        end = found.index(b"\n", place)
        size = int(found[place:end].split()[-1])
        texts[name] = found[end + 1 : end + 1 + size].decode()
        place = end + 2 + size
    return texts


def kinds_of(text: str) -> Counter[str]:
    """Lines of a Python file: code, docstrings, imports, blank lines and comments that have a line."""
    lines = text.splitlines()
    kinds = ["blank" if not one.strip() else "comment" if one.lstrip()[0] == "#" else "code" for one in lines]
    span: ast.stmt
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            kind, span = "import", node
        elif isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if ast.get_docstring(node) is None:
                continue
            kind, span = "docstring", node.body[0]
        else:
            continue
        end = span.end_lineno or span.lineno
        kinds[span.lineno - 1 : end] = [kind] * (end - span.lineno + 1)
    return Counter(kinds)


def by_commits(log: str) -> dict[str, list[int]]:
    """Commits, lines added and lines removed in sources of the product, for `[same]` commits and for others.

    Args:
        log: of `git log -M --numstat --format='> %s'`.
    """
    found = {"[same]": [0, 0, 0], "others": [0, 0, 0]}
    counted = found["others"]
    for line in log.splitlines():
        if line.startswith("> "):
            counted = found["[same]" if line.startswith("> [same]") else "others"]
            counted[0] += 1
        elif line:
            added, removed, name = line.split("\t")
            # The old name of a moved file; a file without lines has "-".
            name = _RENAMED.sub(r"\1", name).replace("//", "/").split(" => ")[0]
            if name.split("/")[0] in PRODUCT and name.endswith(_SOURCES):
                counted[1] += int(added)
                counted[2] += int(removed)
    return found


def widest(names: tuple[str, ...]) -> tuple[str, int]:
    """The folder with most sources, besides `__init__.py`, and their number."""
    folders = Counter(str(PurePath(name).parent) for name in names if not name.endswith("/__init__.py"))
    return folders.most_common(1)[0]


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
