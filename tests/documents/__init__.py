"""The commands and programs of the documentation, run: `python -m tests.documents`.

`declarations.toml` says which documents, what stands in for boards, and what is not run and why. Whatever is
not declared is run as it is written.
"""

from __future__ import annotations

import fnmatch
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.unit.documentation import ROOT, Block, blocks

SHELL, PROGRAM = "shell", "program"
# Blocks of these kinds are read by tests/unit/documentation: there is nothing to run.
_READ = ("toml", "yaml", "json", "sql", "text")


@dataclass(frozen=True)
class Rule:
    """One entry of the declarations.

    Attributes:
        document: pattern of names of documents.
        match: regular expression of what it is about.
        skip: why this is not run; "" if it is.
        by: what stands in for what matches; None for nothing.
        before: a line that goes before it.
        why: it is run otherwise than it is written.
        codes: exit codes beside 0 that are right.
    """

    document: str
    match: str
    skip: str = ""
    by: str | None = None
    before: str = ""
    why: str = ""
    codes: tuple[int, ...] = ()

    def concerns(self, document: str, text: str) -> bool:
        """Whether the rule is about a text of a document."""
        return fnmatch.fnmatch(document, self.document) and bool(re.search(self.match, text, re.MULTILINE))


@dataclass(frozen=True)
class Statement:
    """A command of a shell or a program.

    Attributes:
        document: that has it.
        kind: SHELL or PROGRAM.
        written: the text there.
        run: the text that is run; "" if it is not.
        reasons: why it is not run, or run otherwise.
        codes: exit codes that are right.
    """

    document: str
    kind: str
    written: str
    run: str
    reasons: tuple[str, ...]
    codes: tuple[int, ...]


@dataclass(frozen=True)
class Declarations:
    """What declarations.toml says.

    Attributes:
        documents: whose commands and programs are run, in order.
        shared: those whose hosts share their records.
        prepare: commands before those of a document, by its name.
        rules: applied to each statement, in order; the first `skip` ends them.
    """

    documents: tuple[str, ...]
    shared: tuple[str, ...]
    prepare: dict[str, tuple[str, ...]]
    rules: tuple[Rule, ...]


def declarations() -> Declarations:
    """Those of the file.

    Raises:
        TypeError: an entry has a field that there is not.
    """
    content = tomllib.loads((Path(__file__).parent / "declarations.toml").read_text())
    rules = [
        Rule(**{"document": "*", **rule, "codes": tuple(rule.get("codes", ()))}) for rule in content["rules"]
    ]
    prepare: dict[str, Any] = content["prepare"]
    return Declarations(
        tuple(content["documents"]),
        tuple(content["shared"]),
        {name: tuple(lines) for name, lines in prepare.items()},
        tuple(rules),
    )


def statements(declared: Declarations, document: str) -> Iterator[Statement]:
    """What a document tells its reader to type, in its order."""
    for block in blocks(ROOT / document):
        for kind, text in _texts(block):
            yield _statement(declared.rules, document, kind, text)


def _texts(block: Block) -> Iterator[tuple[str, str]]:
    if block.kind in _READ:
        return
    if block.kind == "python":
        yield PROGRAM, block.text
        return
    for line in re.sub(r"\\\n\s*", " ", block.text).splitlines():
        command = re.sub(r"^\$ ", "", re.sub(r"\s{2,}#.*$", "", line).strip())
        if command and not command.startswith("#"):
            # Beside commands that do the same.
            yield (PROGRAM, f"import sdk\n{command}") if command.startswith("sdk.") else (SHELL, command)


def _statement(rules: Sequence[Rule], document: str, kind: str, text: str) -> Statement:
    run, reasons, codes = text, [], {0}
    for rule in rules:
        if not rule.concerns(document, run):
            continue
        if rule.skip:
            return Statement(document, kind, text, "", (rule.skip,), ())
        if rule.by is not None:
            run = re.sub(rule.match, rule.by, run, flags=re.MULTILINE)
        if rule.before:
            run = f"{rule.before}\n{run}"
        reasons += [rule.why] if rule.why else []
        codes |= set(rule.codes)
    return Statement(document, kind, text, run, tuple(reasons), tuple(sorted(codes)))
