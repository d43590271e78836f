"""`python -m tests.documents` runs everything of the documents that is not declared, with a reason."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.result_file import RESULTS, heading, write_result
from tests.documents import Statement, declarations, statements
from tests.documents.results import SCHEMA, counts, digest, provenance, results_so_far, stands
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


def test_a_document_that_failed_or_says_something_else_runs_again(tmp_path: Path) -> None:
    wanted = [one for one in STATEMENTS if one.document == "README.md"]
    rows = [{"outcome": "run"}, {"outcome": "declared"}]
    about = heading("tests.documents", SCHEMA)
    found = provenance(about, wanted) | {"statements": rows}
    write_result(
        tmp_path / "r.json", about | {"count": counts({"a": found}), "documents": {"README.md": found}}
    )
    kept = results_so_far(tmp_path / "r.json")
    assert kept == {"README.md": found} and results_so_far(tmp_path / "none.json") == {}
    assert stands(kept["README.md"], wanted) and not stands(None, wanted)
    assert not stands(kept["README.md"], [replace(wanted[0], run="sdk"), *wanted[1:]])
    assert not stands(found | {"statements": [*rows, {"outcome": "failed"}]}, wanted)


def test_documents_keep_the_machine_that_they_ran_on(tmp_path: Path) -> None:
    """The heading of a result is that of its last run, maybe on another machine."""
    about = heading("tests.documents", SCHEMA)
    first = about | {"machine": about["machine"] | {"cpu": "a first processor", "cores": 3}}
    of_the_heading = {"text": digest([]), "statements": []}
    own = of_the_heading | {"machine": {"cpu": "a second processor", "cores": 5}}
    write_result(tmp_path / "r.json", first | {"documents": {"a.md": of_the_heading, "b.md": own}})
    kept = results_so_far(tmp_path / "r.json")
    now = provenance(about | {"machine": about["machine"] | {"cpu": "a third processor"}}, [])
    write_result(tmp_path / "r.json", about | {"documents": kept | {"c.md": now}})
    found = results_so_far(tmp_path / "r.json")
    assert found["a.md"] == of_the_heading | {"machine": {"cpu": "a first processor", "cores": 3}}
    assert found["b.md"] == own
    assert found["c.md"]["machine"] == {"cpu": "a third processor", "cores": about["machine"]["cores"]}


def test_no_statement_of_the_result_failed() -> None:
    """Whether it is of today's documents, `python -m tests.documents --resume` says."""
    result = results_so_far(RESULTS / "documents.json")
    assert result and set(result) <= set(DECLARED.documents)
    assert counts(result)["failed"] == 0
