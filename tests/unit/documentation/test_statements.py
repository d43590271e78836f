"""`python -m tests.documents` runs everything of the documents that is not declared, with a reason."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.documents import Statement, declarations, statements
from tests.unit.documentation import ROOT

DECLARED = declarations()
STATEMENTS = [one for name in DECLARED.documents for one in statements(DECLARED, name)]


def test_the_guides_and_the_first_page_are_run() -> None:
    guides = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs/guide").glob("*.md")}
    assert {"README.md", *guides} <= set(DECLARED.documents)
    assert {*DECLARED.prepare, *DECLARED.shared} <= set(DECLARED.documents)
    assert len(STATEMENTS) > 120
    assert sum(bool(one.run) for one in STATEMENTS) > 90


def test_what_is_not_run_or_run_otherwise_has_a_reason() -> None:
    without = [one for one in STATEMENTS if one.run != one.written and not one.reasons]
    # A call beside commands is given the import that its reader has.
    assert [one.run for one in without if one.run != f"import sdk\n{one.written}"] == []


@pytest.mark.parametrize("rule", DECLARED.rules, ids=lambda one: one.match)
def test_a_rule_is_about_something_and_does_one_thing(rule: object) -> None:
    """One whose document has changed would hide that nothing runs any more."""
    kept = tuple(one for one in DECLARED.rules if one is not rule)
    fewer = replace(DECLARED, rules=kept)
    left = [one for name in DECLARED.documents for one in statements(fewer, name)]
    assert left != STATEMENTS


def _unfilled(one: Statement) -> list[str]:
    return re.findall(r"\b(?:MODEL|BUNDLE|NAME|FILE|FOLDER|KEY|BOARD|HASH|ORG)\b", one.run)


def test_what_runs_has_no_word_that_stands_for_another() -> None:
    assert [one.run for one in STATEMENTS if _unfilled(one)] == []
