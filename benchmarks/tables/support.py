"""The table of what is shown for which target, from docs/support.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.result_file import ROOT
from benchmarks.tables.table import markdown
from host.errors import UserError
from targets import declared

LOCAL = "local"
HOW = ("board", "machine", "emulated", "compiled", "documented")
_NOTHING = "no evidence"
_FILE = ROOT / "docs" / "support.toml"


@dataclass(frozen=True)
class Evidence:
    """Tests that show a promise for some targets.

    Attributes:
        promise: the column.
        how: of `HOW`.
        targets: the rows.
        tests: identifiers of pytest, for all of the targets.
        each: identifier of pytest with `{target}` in it; "" for none.
    """

    promise: str
    how: str
    targets: tuple[str, ...]
    tests: tuple[str, ...] = ()
    each: str = ""

    def tests_of(self, target: str) -> tuple[str, ...]:
        """The tests for one of the targets."""
        return (*self.tests, self.each.format(target=target)) if self.each else self.tests


def read_support(path: Path = _FILE) -> tuple[dict[str, str], tuple[Evidence, ...]]:
    """The promises with what they mean, and all evidence.

    Raises:
        UserError: an entry names a promise, a target or a way that there is not, or no test.
    """
    content = tomllib.loads(path.read_text())
    promises: dict[str, str] = content["promises"]
    found = []
    for entry in content["evidence"]:
        one = Evidence(
            promise=entry["promise"],
            how=entry["how"],
            targets=tuple(entry["targets"]),
            tests=tuple(entry.get("tests", ())),
            each=entry.get("each", ""),
        )
        unknown = set(one.targets) - set(rows())
        if one.promise not in promises or one.how not in HOW or unknown or not (one.tests or one.each):
            raise UserError(f"{path.name}: {one} names what there is not, or no test")
        found.append(one)
    return promises, tuple(found)


def rows() -> tuple[str, ...]:
    """Every target, and the machine that runs the tests."""
    return (*sorted(declared()), LOCAL)


def support() -> list[str]:
    """A row for each target and a column for each promise; then the tests behind every cell."""
    promises, evidence = read_support()
    cells = [[_cell(evidence, target, promise) for promise in promises] for target in rows()]
    lines = markdown(["target", *promises], [[f"`{t}`", *row] for t, row in zip(rows(), cells, strict=True)])
    lines += ["", *(f"- **{promise}**: {meaning}" for promise, meaning in promises.items()), ""]
    for target in rows():
        lines += [f"### `{target}`", ""]
        for promise in promises:
            tests = _tests(evidence, target, promise)
            lines += [f"- {promise}: {', '.join(f'`{test}`' for test in tests) or _NOTHING}"]
        lines += [""]
    return lines[:-1]


def _cell(evidence: Sequence[Evidence], target: str, promise: str) -> str:
    ways = {one.how for one in evidence if one.promise == promise and target in one.targets}
    return ", ".join(way for way in HOW if way in ways) or _NOTHING


def _tests(evidence: Sequence[Evidence], target: str, promise: str) -> list[str]:
    return [
        test
        for one in evidence
        if one.promise == promise and target in one.targets
        for test in one.tests_of(target)
    ]
