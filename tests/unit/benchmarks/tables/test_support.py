"""The table of support: every target has its row, and every test that it names exists."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.result_file import ROOT
from benchmarks.tables.support import LOCAL, read_support, rows, support
from host.errors import UserError
from targets import declared
from tests.scheduling.collected import COLLECTED


def test_every_target_has_a_row_and_every_promise_a_column() -> None:
    promises, _ = read_support()
    head, _, *lines = support()[: len(rows()) + 2]
    assert head.count("|") == len(promises) + 2
    assert [line.split("`")[1] for line in lines] == [*sorted(declared()), LOCAL]


def test_a_cell_says_how_it_is_shown_or_that_nothing_shows_it() -> None:
    lines = {line.split("`")[1]: line for line in support()[2 : len(rows()) + 2]}
    assert "| emulated |" in lines["rv64gcv"]
    assert "no evidence" in lines["jetson_xavier_nx"]


def test_the_named_tests_exist(request: pytest.FixtureRequest) -> None:
    _, evidence = read_support()
    named = {test for one in evidence for target in one.targets for test in one.tests_of(target)}
    # The whole suite has found them all, a run of chosen tests only some of a file.
    known = request.config.stash[COLLECTED]
    files = sorted({test.partition("::")[0] for test in named - known})
    if files:
        command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-o", "addopts=", *files]
        # Options of the user's, as -v, would change the form of the list.
        plain = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
        done = subprocess.run(command, cwd=ROOT, env=plain, check=True, capture_output=True, text=True)
        known |= {line for line in done.stdout.splitlines() if "::" in line}
    assert named - known == set()


@pytest.mark.parametrize(
    "entry",
    [
        'promise = "absent"\nhow = "machine"\ntargets = ["local"]\ntests = ["a"]',
        'promise = "int8"\nhow = "guessed"\ntargets = ["local"]\ntests = ["a"]',
        'promise = "int8"\nhow = "machine"\ntargets = ["absent"]\ntests = ["a"]',
        'promise = "int8"\nhow = "machine"\ntargets = ["local"]',
    ],
)
def test_evidence_of_nothing_is_refused(entry: str, tmp_path: Path) -> None:
    path = tmp_path / "support.toml"
    path.write_text(f'[promises]\nint8 = "products"\n\n[[evidence]]\n{entry}\n')
    with pytest.raises(UserError, match="names what there is not"):
        read_support(path)
